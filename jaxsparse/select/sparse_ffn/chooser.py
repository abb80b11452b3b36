"""How `sparse_ffn` chooses: by tokens, and for many tokens on a CPU by the share of activations
that are not zero, which is known when the last product starts.

A few tokens are bound by the bytes of the weights, of which the lists read no more than the dense
products at any share. Many tokens are bound by operations, which the dense product does faster: it
is taken where more activations than a given share are not zero.
"""

import dataclasses
import math

from jaxsparse.core.device import shared_bytes
from jaxsparse.core.dtypes import HALF
from jaxsparse.select.choice import Chooser, Offer, Reason, register
from jaxsparse.select.problem import Problem
from jaxsparse.select.table import DENSE, Rung
from jaxsparse.select.variants import also_runs

OP = "sparse_ffn"
#: The variant that lists what is not zero, and reads the rows of w_down that are listed.
LISTS = "lists"
#: Platform -> the most tokens that one call takes, first product and activation included; on a CPU
#: more of 16 bits, whose dense products XLA does slowly there.
FEW_TOKENS = {"cpu": 4, "cuda": 8}
HALF_TOKENS = {"cpu": 16, "cuda": 8}
#: What the CUDA kernels ask of d, f and d_out: whole vectors, and a most.
VECTOR, MOST_WIDTH = 8, 2**24
#: A list of a GPU's kernels for many tokens: so many tokens, of so many columns of h, and the
#: columns that it has room for.
GROUP, CHUNK, ROOM = 8, 512, 128
#: The most lists, times the panels of CHUNK columns of the result; of x and w_up, entries.
MOST_LISTS, MOST_ENTRIES = 2**26, 2**34
#: Shared memory of a block: two stages of 64 KiB.
STAGES_BYTES = 2 * 2**16
#: Share of activations up to which the lists of many tokens are faster than a dense product on a
#: CPU. On a GPU they are faster with a gate and 99.5 % zeros or more only, and a call that looks
#: first takes 3 to 10 % longer than one that does not: they run there when they are asked for.
LISTS_UP_TO = 0.03

for _platform in FEW_TOKENS:
    also_runs(OP, _platform, LISTS, DENSE)


@dataclasses.dataclass(frozen=True)
class FfnProblem:
    """One call: `sizes` are tokens, d (0: a product alone, of the gradient), f, d_out; `top_k` 0
    keeps every activation; `own`: an implementation is demanded by name; `transposed_up`: w_up is
    [f, d].
    """

    platform: str
    sizes: tuple[int, int, int, int]
    gated: bool
    top_k: int
    dtype: str
    precision: str
    own: bool = False
    transposed_up: bool = False

    @property
    def few(self) -> bool:
        """Whether one call takes all of it."""
        most = HALF_TOKENS if self.dtype in HALF else FEW_TOKENS
        return self.sizes[1] > 0 and self.sizes[0] <= most[self.platform]

    @property
    def known(self) -> Problem:
        """What tuning tables know it by."""
        features: dict[str, float] = {
            **dict(zip(("tokens", "depth", "hidden", "outputs"), self.sizes, strict=True)),
            "gated": self.gated,
            "top_k": self.top_k,
        }
        highest = self.dtype == "float32" and self.precision == "highest"
        dtype = "highest" if highest and self.platform == "cuda" else self.dtype
        return Problem(OP, self.platform, dtype, features, self.sizes[0] * self.sizes[2], self.own)


def candidates(problem: FfnProblem) -> Offer:
    """The lists where they take the problem, and XLA's products."""
    if reason_against(problem, LISTS) is not None:
        return Offer((DENSE,))
    if problem.few:
        return Offer((LISTS, DENSE))
    if problem.platform == "cuda":
        return Offer((DENSE, LISTS), Reason.DENSE_FIRST)
    return Offer((LISTS, DENSE), ladder=(Rung(LISTS_UP_TO, LISTS), Rung(1.0, DENSE)))


def against(problem: FfnProblem) -> dict[str, str]:
    """Name -> why that variant does not take the problem."""
    why = reason_against(problem, LISTS)
    return {LISTS: why} if why else {}


def reason_against(problem: FfnProblem, variant: str) -> str | None:
    """Why `variant` does not take this problem, or None. The handlers refuse by the same rules."""
    if variant == DENSE or problem.platform == "cpu":
        return None
    return _against_few(problem) if problem.few else _against_many(problem)


def _against_few(problem: FfnProblem) -> str | None:
    if problem.top_k:
        return "top_k: the kernels for a GPU keep every activation"
    if problem.transposed_up:
        return "transposed_up: the kernels for a GPU take up to 8 tokens with w_up [d, f]"
    return _against_widths(problem)


def _against_many(problem: FfnProblem) -> str | None:
    tokens, depth, hidden, outputs = problem.sizes
    if problem.dtype not in HALF:
        return f"{problem.dtype}: the kernels for a GPU list many tokens in 16-bit dtypes"
    if shared_bytes() < STAGES_BYTES:
        return f"a block of this GPU has {shared_bytes()} bytes of shared memory of {STAGES_BYTES}"
    lists = math.ceil(tokens / GROUP) * math.ceil(hidden / CHUNK)
    if lists * math.ceil(outputs / CHUNK) > MOST_LISTS or tokens * hidden >= 2**31:
        return f"{tokens} tokens by {hidden} are more lists than the kernels for a GPU take"
    if max(tokens, hidden) * depth > MOST_ENTRIES:
        return f"x or w_up passes {MOST_ENTRIES} entries"
    return _against_widths(problem)


def _against_widths(problem: FfnProblem) -> str | None:
    widths = problem.sizes[1:]
    if any(width % VECTOR for width in widths):
        return f"d, f and d_out are {widths}; they must be multiples of {VECTOR}"
    if max(widths) > MOST_WIDTH:
        return f"a width passes {MOST_WIDTH}"
    return None


CHOOSER = register(Chooser(OP, FfnProblem, candidates, against))
