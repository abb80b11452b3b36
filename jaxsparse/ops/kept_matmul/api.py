"""`kept_matmul`: `masked_matmul` of a weight that is stored as its kept blocks.

The weight is laid out as a matrix while one product runs, and again in the backward pass: between
them only the blocks are held.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float

from jaxsparse.core.checks import (
    as_array,
    canonical_precision,
    check_array,
    check_float,
    check_same_dtype,
    result_dtype,
)
from jaxsparse.core.differentiable import differentiable, product_rule
from jaxsparse.core.variables import takes_variables
from jaxsparse.ffi import Implementation
from jaxsparse.ffi.platform import named, runs_as
from jaxsparse.index.kept_blocks import KeptBlocks
from jaxsparse.ops.masked_matmul.api import Prepared, prepare
from jaxsparse.ops.masked_matmul.blocks import check_density
from jaxsparse.select.explain import watched

OP = "kept_matmul"
runs_as(OP, "masked_matmul")


@takes_variables
def kept_matmul(
    values: Float[ArrayLike, "capacity rows columns"],
    kept: KeptBlocks,
    b: Float[ArrayLike, "*batch k n"],
    *,
    precision: jax.lax.PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    density: float | None = None,
    implementation: Implementation = None,
) -> Float[Array, "*batch m n"]:
    """`kept.dense(values) @ b`: the product with a matrix [m, k] that is zero outside of its kept
    blocks, for training with weights that exist only where the mask is.

    It runs as `js.masked_matmul` with the mask on its first operand. Differentiable in values and
    b. The gradient of values has their shape, so an optimiser's state has it, too. The backward
    pass saves values and b; the matrix itself exists only while one product runs.

    Args:
        values: float32, bfloat16 or float16 [capacity, rows, columns]: the block in each slot.
            Slots that are free are not read.
        kept: which blocks they are, from `js.kept_blocks(mask, (m, k), (rows, columns))`.
        b: same dtype, [*batch, k, n].
        precision: as in jax.lax.
        preferred_element_type: the result's dtype: that of values (default) or float32.
        density: roughly the share of the blocks that is kept, as `js.masked_matmul` takes it.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.

    Returns:
        [*batch, m, n].

    Raises:
        TypeError, ValueError: for a wrong rank, shape, dtype or option, naming the argument.
    """
    if not isinstance(kept, KeptBlocks):
        raise TypeError(f"kept must be the KeptBlocks of js.kept_blocks, not {type(kept).__name__}")
    for name, value, least in (("values", values, 3), ("b", b, 2)):
        check_array(name, value, least=least)
    values, b = as_array("values", values), as_array("b", b)
    check_float("values", values)
    check_same_dtype("b", b, "values", values)
    needs = (kept.capacity, *kept.granularity)
    if values.shape != needs:
        raise ValueError(f"values has shape {values.shape}; the kept blocks need {needs}")
    if b.shape[-2] != kept.shape[1]:
        rows = kept.shape[1]
        raise ValueError(f"b has shape {b.shape}; kept is of {kept.shape}: it needs {rows} rows")

    options = _Options(
        canonical_precision(precision),
        result_dtype(preferred_element_type, values.dtype).name,
        check_density(density),
        named(implementation),
        jax.default_backend() == "cpu" and _on_one_device(b),
    )
    if watched():  # the passes of the gradient trace the product again
        _prepared(options, kept, kept.dense(values), b).tell()
    result: jax.Array = _product(options, values, kept, b)
    return result


def _on_one_device(b: jax.Array) -> bool:
    """Whether no mesh is known of: one entry of an array that is split would have to be sent."""
    return jax.sharding.get_abstract_mesh().empty and jax.typeof(b).sharding.mesh.empty


@dataclasses.dataclass(frozen=True)
class _Options:
    """What is static about one call. `ordered`: the matrix is laid out when the product that takes
    it can start, and not earlier.
    """

    precision: str
    out_dtype: str
    density: float | None
    implementation: Implementation
    ordered: bool


@differentiable()
def _product(p: _Options, values: jax.Array, kept: KeptBlocks, b: jax.Array) -> jax.Array:
    return _masked(p, kept, _matrix(p, values, kept, b), b)


def _masked(p: _Options, kept: KeptBlocks, matrix: jax.Array, b: jax.Array) -> jax.Array:
    return _prepared(p, kept, matrix, b).run()


def _prepared(p: _Options, kept: KeptBlocks, matrix: jax.Array, b: jax.Array) -> Prepared:
    options = (p.precision, p.out_dtype, p.density, p.implementation)
    return prepare(OP, matrix, b, (kept.mask, None, None), kept.granularity, *options)


def _matrix(p: _Options, values: jax.Array, kept: KeptBlocks, first: jax.Array) -> jax.Array:
    """The matrix of the blocks. XLA's scheduler for CPUs runs early whatever can run, which would
    lay out the matrices of all layers at once, and it ignores optimisation barriers. So the slots
    depend on an entry of what the product waits for, in a way that changes none of them.
    """
    if p.ordered and first.size and kept.capacity:
        entry = first.reshape(-1)[0]
        never = kept.capacity + (entry != entry).astype(jnp.int32)
        kept = dataclasses.replace(kept, slots=jnp.minimum(kept.slots, never))
    return kept.dense(values)


def _forward(p: _Options, values: jax.Array, kept: KeptBlocks, b: jax.Array) -> Any:
    return _product(p, values, kept, b), (values, kept, b)


def _tangent(p: _Options, saved: Any, tangents: Any) -> Any:
    values, kept, b = saved
    terms = [_product(p, v, kept, w) for v, w in product_rule((values, b), tangents[::2])]
    return functools.reduce(jnp.add, terms)


def _backward(p: _Options, saved: Any, cotangent: jax.Array) -> Any:
    values, kept, b = saved
    matrix = _matrix(p, values, kept, cotangent)
    turned = jax.vjp(functools.partial(_masked, p, kept), matrix, b)[1]
    of_matrix, of_b = turned(cotangent)
    return kept.take(of_matrix), None, of_b


_product.defrules(_forward, _tangent, _backward)
