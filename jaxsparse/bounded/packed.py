"""`Network`: a whole stack of saturated layers, packed for one call (`js.bounded.network`)."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Float32, Int32, Integer, UInt32

from jaxsparse.bounded.activations import Activations
from jaxsparse.bounded.layer import check_values_of
from jaxsparse.bounded.pack import RETIRE_UPPER, RETIRE_ZERO
from jaxsparse.core.checks import is_traced
from jaxsparse.core.contract import BoundedNetworkRow
from jaxsparse.core.variables import takes_variables
from jaxsparse.ffi import Implementation

#: Fields that are arrays.
DATA = ("table", "starts", "indices", "weights", "bias", "uppers", "expand")
_META = (
    "n_in",
    "n_out",
    "depth",
    "first",
    "widest",
    "upper",
    "decides",
    "bundles",
    "shapes",
    "implementation",
)


@functools.partial(jax.tree_util.register_dataclass, data_fields=DATA, meta_fields=_META)
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Network:
    """A packed stack: a pytree, callable under jit. Pass it as an argument; closed over, its
    weights become constants.

    Differentiable in the images, weights and biases: the derivative of min(max(., 0), upper)
    is 1 inside the bounds and 0 at and outside of them. The backward pass computes the layers again
    in plain jax.numpy. The proofs of which rows retire hold for the weights that were inspected:
    pass other weights by `with_values`, which drops the proofs.

    Attributes:
        table: uint32[depth, 8]: a row a layer; columns: `core.contract.BoundedNetworkRow`.
        starts, indices, weights, bias: the layers' arrays, one after the other; uppers:
            float32[depth].
        expand: int32[n_out], the stored value of each output, or None: in order.
        n_in, n_out, depth, upper: of the whole; first, widest: stored outputs of the first and of
            the widest layer (with bundles the inputs count, too).
        decides: whether some state retires before the last layer.
        bundles: 0, or how far the GPU may go with bundles (`bundled_ways`): 1: some layer's units
            are bundles; 2: the first layers go by panels; 3: and the first of all reads the images
            as they are.
        shapes: (inputs, stored outputs, indices, rows of a unit) of each layer.
    """

    table: UInt32[Array, "depth 8"]
    starts: Int32[Array, "starts"]
    indices: Integer[Array, "indices"]
    weights: Float32[Array, "weights"]
    bias: Float32[Array, "outputs"]
    uppers: Float32[Array, "depth"]
    expand: Int32[Array, "n_out"] | None
    n_in: int
    n_out: int
    depth: int
    first: int
    widest: int
    upper: float
    decides: bool
    bundles: int
    shapes: tuple[tuple[int, int, int, int], ...]
    implementation: Implementation

    @takes_variables
    def __call__(self, acts: Activations | Float[ArrayLike, "batch n_in"]) -> Activations:
        """The stack's result, Activations of float32[batch, n_out] with one code a row: call
        `.materialize()` to read the values.

        Raises:
            TypeError, ValueError: for another dtype or width than the first layer's; for networks
                stacked in one.
        """
        late: Any = importlib.import_module("jaxsparse.ops.bounded_network.api")
        found: Activations = late.apply(self, acts)
        return found

    @takes_variables
    def with_values(
        self,
        weights: Float32[ArrayLike, "weights"],
        bias: Float32[ArrayLike, "outputs"] | None = None,
    ) -> Network:
        """The same pattern with other weights (and biases), without proofs: every row is computed
        to the end. For training.

        Args:
            weights: float32, in the order of `weights`.
            bias: float32, in the order of `bias`; None keeps the network's.

        Raises:
            TypeError, ValueError: for another dtype or shape.
        """
        bias = self.bias if bias is None else bias
        check_values_of(self, weights=weights, bias=bias)
        table = jnp.asarray(self.table).at[..., :-1, BoundedNetworkRow.RETIRES].set(0)
        facts = {"table": table, "weights": weights, "bias": bias, "decides": False}
        return dataclasses.replace(self, **facts)

    def retires(self) -> dict[str, int]:
        """The first layer after which rows of each decided state retire for good; depth - 1, the
        last layer, where nothing is proven (`decides` is False where neither retires earlier)."""
        flags = np.asarray(self.table)[:, BoundedNetworkRow.RETIRES]
        found = {"zero": flags & RETIRE_ZERO, "upper": flags & RETIRE_UPPER}
        return {k: int(np.argmax(v != 0)) if v.any() else self.depth for k, v in found.items()}

    def __repr__(self) -> str:
        entries = sum(e * rows for _, _, e, rows in self.shapes)
        return (
            f"Network({self.n_in} -> {self.n_out}, {self.depth} layers, "
            f"at most {self.widest} distinct values, {entries} entries"
            f"{' in bundles' if self.bundles else ''}{self._retirement()})"
        )

    def _retirement(self) -> str:
        """For `repr`: nothing where no row retires, or the table is traced, stacked or no array."""
        known = isinstance(self.table, (np.ndarray, jax.Array)) and self.table.ndim == 2
        known = known and self.decides and not is_traced(self)
        return f", retires from layer {self.retires()}" if known else ""
