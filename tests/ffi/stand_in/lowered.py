"""The calls of handlers that the public operations make on a GPU: the operations are traced, and
lowered for CUDA, which needs none.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import ml_dtypes
import numpy as np
from ffi.stand_in.loaded import Array, Call
from jaxlib.mlir import ir

PREFIX = "jaxsparse_"
DTYPES: dict[str, Any] = {"i1": np.bool_, "ui8": np.uint8, "ui16": np.uint16, "ui32": np.uint32}
DTYPES |= {"i8": np.int8, "i16": np.int16, "i32": np.int32, "f16": np.float16, "f32": np.float32}
DTYPES |= {"bf16": ml_dtypes.bfloat16, "f64": np.float64, "i64": np.int64, "ui64": np.uint64}


def calls_of(function: Callable[..., Any], *operands: Any) -> list[Call]:
    """Every call of a handler of the package that `function` makes when it is lowered for CUDA, in
    all branches of a switch.
    """
    lowered = jax.jit(function).trace(*operands).lower(lowering_platforms=("cuda",))
    module = lowered.compiler_ir("stablehlo")
    assert module is not None
    with module.context:
        return list(_calls(module.operation))


def _calls(operation: Any) -> Iterator[Call]:
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                if inner.operation.name == "stablehlo.custom_call":
                    target = ir.StringAttr(inner.attributes["call_target_name"]).value
                    if target.startswith(PREFIX):
                        yield _call(target.removeprefix(PREFIX), inner)
                yield from _calls(inner.operation)


def _call(name: str, operation: Any) -> Call:
    config = ir.DictAttr(operation.attributes["mhlo.backend_config"])
    attributes = {config[i].name: _value(config[i].attr) for i in range(len(config))}
    aliases = {}
    for alias in ir.ArrayAttr(operation.attributes["output_operand_aliases"]):
        text = str(alias)
        operand = int(text.split("operand_index =")[1].split(",")[0])
        places = text.split("output_tuple_indices = [")[1].split("]")[0]
        aliases[operand] = int(places) if places else 0
    operands, results = operation.operands, operation.results
    return Call(
        name,
        tuple(_array(v.type) for v in operands),
        tuple(_array(v.type) for v in results),
        attributes,
        aliases,
    )


def _array(kind: Any) -> Array:
    tensor = ir.RankedTensorType(kind)
    return tuple(tensor.shape), DTYPES[str(tensor.element_type)]


def _value(attribute: Any) -> Any:
    kinds = {ir.BoolAttr: np.bool_, ir.IntegerAttr: np.int64, ir.FloatAttr: np.float32}
    return kinds[type(attribute)](attribute.value)
