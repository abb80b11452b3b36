"""`js.nn.nnx.BoundedDense`: a frozen saturated layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flax import nnx
from jax.typing import ArrayLike

from jaxsparse.bounded.layer import Layer
from jaxsparse.core.types import Dataflow
from jaxsparse.ffi import Implementation
from jaxsparse.ffi.platform import named
from jaxsparse.nn import bounded
from jaxsparse.nn.nnx.layer import Layer as NnxLayer

if TYPE_CHECKING:
    from jaxsparse.core.sparse import SparseMatrix


class BoundedDense(bounded.BoundedDenseCall, NnxLayer, nnx.Module):
    """A frozen layer y = min(max(x W + b, 0), upper), with the recorder of y.

    The weights are those that were inspected: data of the module, and not an `nnx.Param`.

    Args:
        layer: from `js.bounded.inspect`; or a weight [n_in, n_out], dense or sparse, which is
            inspected when the layer is made: the kernel of a Linear.
        bias: with a weight: [n_out] or a number; None is 0.
        upper: with a weight: the bound, > 0.
        dataflow: None, "row", "slab", "column" or "converged", as `js.bounded_matmul` takes it.
        record: False writes every value and sets no code.
        segment: outputs that one code stands for; None chooses.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.
        rngs: as other layers take it; nothing is drawn.

    Raises:
        TypeError, ValueError: for a layer of something else, or a wrong option.
    """

    def __init__(
        self,
        layer: Layer | ArrayLike | SparseMatrix,
        bias: ArrayLike | None = None,
        upper: float | None = None,
        *,
        dataflow: Dataflow | None = None,
        record: bool = True,
        segment: int | None = None,
        implementation: Implementation = None,
        rngs: nnx.Rngs | None = None,
    ) -> None:
        del rngs
        bounded.check_options(dataflow, record, segment, implementation)
        self.layer = bounded.made(layer, bias, upper)
        self.dataflow: Dataflow | None = dataflow
        self.record, self.segment = record, segment
        self.implementation: Implementation = named(implementation)
