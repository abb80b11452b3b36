"""`Layer`: what inspection leaves of a weight matrix. Distinct rows only, padded, with the proofs
that hold for it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import Array, Float32, Int32, Integer
from numpy.typing import NDArray

from jaxsparse.core.variables import takes_variables

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_DATA = ("starts", "indices", "weights", "bias", "expand")
_META = ("n_in", "n_out", "upper", "zero_stays", "saturates_from")


@functools.partial(jax.tree_util.register_dataclass, data_fields=_DATA, meta_fields=_META)
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Layer:
    """One layer y = min(max(x W + b, 0), upper), inspected: a pytree of arrays with static facts.

    Attributes:
        starts: int32[distinct + 1], where each distinct row's entries start; every row has a
            multiple of four.
        indices: uint16[entries], or int32 where the inputs pass 65536: the input of each entry.
        weights: float32[entries]. A row is padded by splitting entries in halves, which changes no
            sum.
        bias: float32[distinct].
        expand: int32[n_out], the distinct row of each output; None when every output has its own,
            in order. (No empty array: XLA of jax 0.11 crashes on one that enters a shard_map.)
        n_in, n_out: widths.
        upper: the bound, > 0.
        zero_stays: proven: an all-zero row stays all zero.
        saturates_from: proven: a row whose elements all equal some v >= this becomes all `upper`;
            inf when nothing is.
    """

    starts: Int32[Array, "rows"] | NDArray[np.int32]
    indices: Integer[Array, "entries"] | NDArray[np.uint16] | NDArray[np.int32]
    weights: Float32[Array, "entries"] | NDArray[np.float32]
    bias: Float32[Array, "distinct"] | NDArray[np.float32]
    expand: Int32[Array, "n_out"] | NDArray[np.int32] | None
    n_in: int
    n_out: int
    upper: float
    zero_stays: bool
    saturates_from: float

    @property
    def distinct(self) -> int:
        """How many different outputs there are."""
        return self.bias.shape[-1]

    @property
    def folded(self) -> bool:
        """Whether outputs share rows."""
        return self.expand is not None

    def keeps_upper(self, bound: float) -> bool:
        """Whether a row that is all `bound` is proven to become all `upper`."""
        return bound >= self.saturates_from

    @takes_variables
    def with_values(
        self,
        weights: Float32[Array, "entries"] | NDArray[np.float32],
        bias: Float32[Array, "distinct"] | NDArray[np.float32] | None = None,
    ) -> Layer:
        """The same pattern with other weights (and biases), without proofs: these hold only for the
        numbers that were inspected. For training under `jax.grad`.

        Args:
            weights: float32[entries], in the order of `weights`.
            bias: float32[distinct]; None keeps the layer's.

        Raises:
            TypeError, ValueError: for another dtype or shape.
        """
        bias = self.bias if bias is None else bias
        check_values_of(self, weights=weights, bias=bias)
        return dataclasses.replace(
            self, weights=weights, bias=bias, zero_stays=False, saturates_from=float("inf")
        )

    def expand_map(self) -> NDArray[np.int32]:
        """The distinct row of each output, int32[n_out]."""
        return np.asarray(self.expand) if self.folded else np.arange(self.n_out, dtype=np.int32)

    def to_csr(self) -> csr_matrix:
        """The weights of the distinct outputs, float64 CSR [distinct, n_in], duplicates summed."""
        import scipy.sparse as sp

        csr = sp.csr_matrix(
            (
                np.array(self.weights, np.float64),
                np.array(self.indices, np.int32),
                np.array(self.starts),  # sum_duplicates works in place
            ),
            (self.distinct, self.n_in),
        )
        csr.sum_duplicates()
        return csr

    def to_dense(self) -> NDArray[np.float64]:
        """The whole weight matrix, float64[n_in, n_out]."""
        return self.to_csr().toarray()[self.expand_map()].T

    def full_bias(self) -> NDArray[np.float32]:
        """The bias of each output, float32[n_out]."""
        return np.asarray(self.bias)[self.expand_map()]

    def __repr__(self) -> str:
        if not hasattr(self.bias, "shape"):  # a pytree of something else than arrays
            return f"Layer({self.n_in} -> {self.n_out})"
        proofs = [name for name, held in self.proofs().items() if held]
        return (
            f"Layer({self.n_in} -> {self.n_out}, {self.distinct} distinct, "
            f"{self.weights.shape[-1]} entries, "
            f"upper={self.upper:g}, proven: {', '.join(proofs) or 'nothing'})"
        )

    def proofs(self) -> dict[str, bool]:
        """What inspection proved of this layer, by name."""
        return {
            "zero rows stay zero": self.zero_stays,
            "rows at the bound stay there": self.keeps_upper(self.upper),
            "outputs fold": self.distinct < self.n_out,
        }


def check_values_of(owner: Any, **given: Any) -> None:
    """Whether arrays may stand for those of `owner` of the same names.

    Raises:
        TypeError, ValueError: for another dtype than float32, or another shape.
    """
    for name, array in given.items():
        own = getattr(owner, name)
        if getattr(array, "dtype", None) != np.float32:
            kind = getattr(array, "dtype", type(array).__name__)
            raise TypeError(f"{name} must be a float32 array, not {kind}")
        if array.shape != own.shape:
            what = type(owner).__name__.lower()
            raise ValueError(f"{name} has shape {array.shape}; the {what}'s has {own.shape}")


def stack(layers: Sequence[Layer]) -> Layer:
    """Layers of equal widths and bound as one pytree with a leading axis, for `jax.lax.scan`.

    A scan's carry holds the recorder of a layer's result, which plain values do not have: run the
    first layer in front of the scan.

    Args:
        layers: at least one; equal n_in, n_out and upper.

    Returns:
        A Layer of stacked arrays; its proofs are those that hold for every layer.

    Raises:
        ValueError: when there is no layer, or widths or bounds differ.
    """
    if not layers:
        raise ValueError("stack needs at least one layer")
    first = layers[0]
    for i, layer in enumerate(layers):
        if (layer.n_in, layer.n_out, layer.upper) != (first.n_in, first.n_out, first.upper):
            raise ValueError(
                f"layer {i} is {layer.n_in} -> {layer.n_out} with upper={layer.upper:g}; "
                f"layer 0 is "
                f"{first.n_in} -> {first.n_out} with upper={first.upper:g}: only equal ones stack"
            )
    distinct = max(layer.distinct for layer in layers)
    entries = max(layer.weights.shape[0] for layer in layers)
    folded = any(layer.folded for layer in layers)

    def padded(values: Any, size: int, mode: str) -> np.ndarray:
        values = np.asarray(values)
        return np.pad(values, (0, size - len(values)), mode=mode)  # pyright: ignore

    return Layer(
        np.stack([padded(layer.starts, distinct + 1, "edge") for layer in layers]),
        np.stack([padded(layer.indices, entries, "constant") for layer in layers]),
        np.stack([padded(layer.weights, entries, "constant") for layer in layers]),
        np.stack([padded(layer.bias, distinct, "constant") for layer in layers]),
        np.stack([layer.expand_map() for layer in layers]) if folded else None,
        first.n_in,
        first.n_out,
        first.upper,
        all(layer.zero_stays for layer in layers),
        max(layer.saturates_from for layer in layers),
    )
