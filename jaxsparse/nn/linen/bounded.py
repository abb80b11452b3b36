"""`js.nn.linen.BoundedDense`: a frozen saturated layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flax import linen
from jax.typing import ArrayLike

from jaxsparse.bounded.layer import Layer
from jaxsparse.core.types import Dataflow
from jaxsparse.ffi import Implementation
from jaxsparse.nn import bounded
from jaxsparse.nn.linen.layer import Layer as LinenLayer

if TYPE_CHECKING:
    from jaxsparse.core.sparse import SparseMatrix


class BoundedDense(bounded.BoundedDenseCall, LinenLayer, linen.Module):
    """A frozen layer y = min(max(x W + b, 0), upper), with the recorder of y.

    The weights are those that were inspected: the layer has no parameters and `init` gives no
    variables. Under jit they are constants of the compiled function.

    Attributes:
        layer: from `js.bounded.inspect`; or a weight [n_in, n_out], dense or sparse, which is
            inspected when the layer is made: the kernel of a Dense.
        bias: with a weight: [n_out] or a number; None is 0.
        upper: with a weight: the bound, > 0.
        dataflow: None, "row", "slab", "column" or "converged", as `js.bounded_matmul` takes it.
        record: False writes every value and sets no code.
        segment: outputs that one code stands for; None chooses.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.

    Raises:
        TypeError, ValueError: when the layer is made of something else, or with a wrong option.
    """

    layer: Layer | ArrayLike | SparseMatrix | None = None
    bias: ArrayLike | None = None
    upper: float | None = None
    dataflow: Dataflow | None = None
    record: bool = True
    segment: int | None = None
    implementation: Implementation = None

    def __post_init__(self) -> None:
        bounded.check_options(self.dataflow, self.record, self.segment, self.implementation)
        self.layer = bounded.made(self.layer, self.bias, self.upper)
        self.bias, self.upper = None, None  # a copy is made of the layer
        super().__post_init__()
