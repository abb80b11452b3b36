"""How the gradient of a convolution's kernel chooses on a GPU: by the rates of its variants."""

import dataclasses
import math

from jaxsparse.core.device import MULTIPROCESSORS, is_hopper
from jaxsparse.select.choice import Chooser, Offer, Reason, register
from jaxsparse.select.costs import EVERY, Candidate
from jaxsparse.select.problem import Problem
from jaxsparse.select.table import Measured
from jaxsparse.select.variants import Variant, table

OP = "masked_conv_dkernel"
USUAL_DENSITY = 0.3  # of the masks that a choice is made for; it is made while tracing
STEP_PIXELS = 64
#: `small_kernel`: weights of the smallest kernel that tensor cores gain from. `step_cycles` of a
#: multiprocessor and `call_us`, by variant: what a step takes, and a call without any.
_MEASURED = Measured(OP, "cuda")


@dataclasses.dataclass(frozen=True)
class DkernelProblem:
    """One gradient: window (kh, kw), channels of x and of the cotangent g, and g's pixels.

    `dtype`, `g_dtype` and `itemsize` are x's and g's names, and the bytes of an element of x.
    """

    window: tuple[int, int]
    channels: int
    outputs: int
    pixels: int
    groups: int
    dtype: str
    g_dtype: str
    itemsize: int

    @property
    def known(self) -> Problem:
        """What tuning tables know it by."""
        features: dict[str, float] = {
            "pixels": self.pixels,
            "taps": math.prod(self.window),
            "channels": self.channels,
            "outputs": self.outputs,
            "groups": self.groups,
        }
        return Problem(OP, "cuda", self.dtype, features, self.pixels)

    @property
    def rows(self) -> int:
        """Of the product: the flat (tap, channel) axis."""
        return math.prod(self.window) * self.channels


def candidates(problem: DkernelProblem) -> Offer:
    """The rows that take the problem: of those on tensor cores the one that takes the least time at
    a usual density first, else `tiles`, else `direct`. A small kernel has little to gain from a
    step and much to lose from parts: `tiles`.
    """
    found = [r for n, r in table(OP, "cuda").items() if reason_against(problem, n) is None]
    tiled = [row for row in found if "tile_m" in row.fields]
    others = [row for row in found if row not in tiled]
    costs = {row.name: _microseconds(row, problem) for row in tiled}
    if tiled and problem.rows * problem.outputs >= _MEASURED("small_kernel"):
        order, reason = [*sorted(tiled, key=lambda row: costs[row.name]), *others], Reason.RATES
    else:
        order = [*sorted(others, key=lambda row: -row.number), *tiled]
        reason = Reason.SMALL
    rows = {
        n: Candidate(n, -1, EVERY, (us, 0.0, float(EVERY), 0.0, 0.0)) for n, us in costs.items()
    }
    return Offer(tuple(row.name for row in order), reason, rows)


def against(problem: DkernelProblem) -> dict[str, str]:
    """Name -> why that variant does not take the problem."""
    reasons = {name: reason_against(problem, name) for name in table(OP, "cuda")}
    return {name: why for name, why in reasons.items() if why}


def _microseconds(row: Variant, problem: DkernelProblem) -> float:
    """What a call takes, by the measured time of its steps and of all that is not steps."""
    f = row.fields
    tiles = -(-problem.rows // f["tile_m"]) * -(-problem.outputs // f["tile_n"])
    steps = problem.pixels * USUAL_DENSITY / STEP_PIXELS
    cycles = MULTIPROCESSORS * _MEASURED("cycles_per_microsecond")
    each = _MEASURED("step_cycles", row.name) / cycles
    return _MEASURED("call_us", row.name) + steps * tiles * each


def reason_against(problem: DkernelProblem, variant: str) -> str | None:
    """Why the CUDA `variant` does not take this problem, or None. The handler refuses by the same
    rules.
    """
    row = table(OP, "cuda")[variant]
    if variant == "direct":
        return None
    vector = 16 // problem.itemsize
    if problem.groups != 1:
        return f"groups={problem.groups}: it takes 1"
    if problem.dtype != problem.g_dtype:
        return f"the cotangent is {problem.g_dtype}, x is {problem.dtype}: they must be equal"
    channels, outputs = problem.channels, problem.outputs
    if channels == 0 or channels % vector or outputs % vector:
        return f"{channels} and {outputs} channels: both must be multiples of {vector}"
    if "tile_m" not in row.fields:
        return None
    if problem.dtype == "float32":
        return "the tensor cores read float32 with K contiguous only, and its K is pixels"
    kh, kw = problem.window
    if kh * kw > 64 or max(kh, kw) > 32:
        return f"a window of {kh}x{kw}: it takes 64 taps, 32 a side"
    return None if is_hopper() else "the device is not of compute capability 9.0"


CHOOSER = register(Chooser(OP, DkernelProblem, candidates, against, by_name=False))
