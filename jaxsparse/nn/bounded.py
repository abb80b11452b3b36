"""What the linen and the nnx `BoundedDense` share: the layer that they hold, and the call."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from jaxsparse.bounded.activations import Activations
from jaxsparse.bounded.inspect import inspect
from jaxsparse.bounded.layer import Layer
from jaxsparse.core.checks import check_bool
from jaxsparse.core.variables import unwrap
from jaxsparse.ffi import Implementation
from jaxsparse.ffi.platform import wishes
from jaxsparse.ops.bounded_matmul.api import DATAFLOWS, bounded_matmul


def made(layer: Any, bias: Any, upper: Any) -> Layer:
    """The layer that a BoundedDense is made of: `layer` itself, or a weight matrix inspected.

    Raises:
        TypeError, ValueError: naming the argument.
    """
    layer, bias = unwrap(layer), unwrap(bias)
    if isinstance(layer, Layer):
        for name, given in (("bias", bias), ("upper", upper)):
            if given is not None:
                raise ValueError(
                    f"{name} is part of a js.bounded.Layer, and goes with weights only"
                )
        if len(layer.starts.shape) != 1:
            raise ValueError("layer is a stack of layers: make a BoundedDense of each of them")
        return layer
    if layer is None:
        raise TypeError("layer is None; it takes a js.bounded.Layer, or a weight [n_in, n_out]")
    if upper is None:
        raise ValueError("upper is None; with weights it is the bound, a number > 0")
    return inspect(layer, 0.0 if bias is None else bias, upper)


def check_options(
    dataflow: object, record: object, segment: object, implementation: Implementation
) -> None:
    """Refuse what `js.bounded_matmul` does not take.

    Raises:
        TypeError, ValueError: naming the argument.
    """
    if dataflow is not None and dataflow not in DATAFLOWS:
        raise ValueError(f"dataflow={dataflow!r} is not one of {', '.join(map(repr, DATAFLOWS))}")
    check_bool("record", record)
    number = isinstance(segment, (int, np.integer)) and not isinstance(segment, bool)
    if segment is not None and (not number or segment < 1):  # pyright: ignore[reportOperatorIssue]
        raise ValueError(f"segment={segment!r}; it takes None or a positive int")
    wishes(implementation)


class BoundedDenseCall:
    """The call of both layers: nothing is differentiated but the activations."""

    TAKES: ClassVar[tuple[str, ...]] = ("activations",)

    def __call__(self, acts: Activations | Float[ArrayLike, "batch n_in"]) -> Activations:
        """The layer of `acts`.

        Args:
            acts: `js.bounded.Activations`, as the layer before gave them, or float32[batch, n_in].

        Returns:
            `js.bounded.Activations` of float32[batch, n_out]: `.materialize()` reads them.

        Raises:
            TypeError, ValueError: for a wrong type, rank or width, naming the argument.
        """
        own: Any = self
        return bounded_matmul(
            acts,
            own.layer,
            dataflow=own.dataflow,
            record=own.record,
            segment=own.segment,
            implementation=own.implementation,
        )
