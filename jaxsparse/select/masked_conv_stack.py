"""How `masked_conv_stack` chooses: one launch of all layers, or layer by layer."""

import dataclasses
import math

from jaxsparse.core.device import is_hopper
from jaxsparse.core.geometry import Pair
from jaxsparse.select.choice import Chooser, Offer, Reason, register
from jaxsparse.select.problem import Problem
from jaxsparse.select.variants import also_runs

OP = "masked_conv_stack"
MAX_LAYERS = 12  # cuda/kernels: kMaxStack
#: Of an image, and pixels of a list, as the handler takes them (cuda/ffi/masked_conv/stack.cc).
MOST_SIDE, MOST_SLOTS = 2**28, 2**30
#: The variants: all layers in one launch, or one call of `masked_conv` a layer.
ONE_LAUNCH, LAYERS = "one launch", "layers"


@dataclasses.dataclass(frozen=True)
class StackProblem:
    """One stack: x [B, H, W, C], the windows of its layers, and the outputs of the last.

    `biases_fit`: each is of its layer's outputs. `tile`, `align`, `capacity`: of the index.
    `offered`: the CUDA kernels are built, and may be taken. `single`: a variant of one layer is
    demanded.
    """

    x_shape: tuple[int, ...]
    dtype: str
    windows: tuple[Pair, ...]
    outputs: int
    biases_fit: bool
    tile: Pair
    align: str
    capacity: int
    offered: bool = True
    single: bool = False

    @property
    def known(self) -> Problem:
        """What tuning tables know it by."""
        features: dict[str, float] = {
            "pixels": math.prod(self.x_shape[:3]),
            "channels": self.x_shape[3],
            "layers": len(self.windows),
        }
        return Problem(OP, "cuda", self.dtype, features)


def reason_against(problem: StackProblem) -> str | None:
    """Why no single launch takes this stack, or None. The handler refuses by the same rules."""
    x, windows, last = problem.x_shape, problem.windows, problem.outputs
    if not problem.offered:
        return "it is CUDA's"
    if not 1 <= len(windows) <= MAX_LAYERS:
        return f"{len(windows)} layers: it takes 1 to {MAX_LAYERS}"
    if problem.dtype == "float32" or x[3] not in (32, 64):
        return f"{problem.dtype}, {x[3]} channels: it takes 16 bits and 32 or 64"
    if len({*windows}) > 1 or not {*windows[0]} <= {1, 2, 3}:
        return "windows: they must be of one size, 1x1 to 3x3"
    if last % 8 or not 0 < last <= 64:
        return f"{last} outputs of the last layer: it takes multiples of 8 to 64"
    if not problem.biases_fit:
        return "a bias is of another size"
    if problem.align != "grid" or any(side % 8 for side in problem.tile):
        return f"tile={problem.tile}, align={problem.align!r}: it takes aligned multiples of 8"
    if 0 in x:
        return "x is empty"
    slots = problem.capacity * math.prod(problem.tile)
    if slots > MOST_SLOTS or max(x[:3]) > MOST_SIDE or math.prod(x) * 2 > 1 << 36:
        return "x has too many pixels"
    if problem.single:
        return "js.config(variant=) names a variant of one layer"
    return None if is_hopper() else "the device is not of compute capability 9.0"


def candidates(problem: StackProblem) -> Offer:
    """One launch where the handler takes it, else layer by layer."""
    if reason_against(problem):
        return Offer((LAYERS,), Reason.NO_ONE_CALL)
    return Offer((ONE_LAUNCH, LAYERS), Reason.ONE_CALL)


def against(problem: StackProblem) -> dict[str, str]:
    """Name -> why that variant does not take the problem."""
    why = reason_against(problem)
    return {} if why is None else {ONE_LAUNCH: why}


also_runs(OP, "cuda", ONE_LAUNCH, LAYERS)
also_runs(OP, "cpu", LAYERS)
CHOOSER = register(Chooser(OP, StackProblem, candidates, against, by_name=False))
