"""How `sparse_attention` chooses: by dtype, head sizes and device.

The kernels cost what the mask keeps; the dense scores cost everything, and hold [B, N, T, S]. They
are for what no kernel takes: no density of the mask makes them the faster way.
"""

import dataclasses
import math

import numpy as np

from jaxsparse.core.device import is_hopper
from jaxsparse.core.dtypes import HALF
from jaxsparse.select.choice import Chooser, Offer, register
from jaxsparse.select.problem import Problem
from jaxsparse.select.table import DENSE
from jaxsparse.select.variants import also_runs

OP = "sparse_attention"
#: Platform -> the number that the handler knows a variant by.
NUMBERS = {
    "cpu": {"blocked": 0},
    "cuda": {"split": 2, "wgmma": 1, "wgmma_reduce": 3, "mma": 0},
}
#: Head sizes of the tiles for Hopper, of q and k, and of v.
HOPPER_DEPTHS = ((64, 64), (128, 128))
#: The keys of a tile of the gradient that adds up dq in global memory: a block is cut into them.
REDUCE_KEYS = 128
#: The most queries of a call that splits its lists of keys: it is made for decoding.
SPLIT_QUERIES = 16
#: The deepest head that the CUDA kernels hold in shared memory.
MOST_DEPTH = 256

#: The variants with gradients on CUDA, in order of preference. Both of Hopper's have one forward
#: kernel.
_GRADIENTS = ("wgmma_reduce", "wgmma", "mma")

for _platform in NUMBERS:
    also_runs(OP, _platform, *NUMBERS[_platform], DENSE)


@dataclasses.dataclass(frozen=True)
class AttentionProblem:
    """One call: q [B, T, N, H], k [B, S, K, H], `v_depth` Hv; `blocks` of the whole mask, of which
    `slots` may be partial; `added`: scores have a soft cap, slopes or a bias; `own`: an
    implementation is demanded by name; `gradient`: the gradients are asked for; `ordered`: the same
    bits are wanted in every run.
    """

    platform: str
    q: tuple[int, ...]
    k: tuple[int, ...]
    v_depth: int
    block_size: tuple[int, int]
    blocks: int
    slots: int
    dtype: str
    precision: str
    scale: float = 1.0
    added: bool = False
    own: bool = False
    gradient: bool = False
    ordered: bool = False

    @property
    def known(self) -> Problem:
        """What tuning tables know it by."""
        features: dict[str, float] = {
            "heads": self.q[0] * self.q[2],
            "queries": self.q[1],
            "keys": self.k[1],
            "depth": self.q[3],
            "block_q": self.block_size[0],
            "block_kv": self.block_size[1],
        }
        highest = self.dtype == "float32" and self.precision == "highest"
        dtype = "highest" if highest and self.platform == "cuda" else self.dtype
        return Problem(OP, self.platform, dtype, features, self.blocks, self.own)


def candidates(problem: AttentionProblem) -> Offer:
    """The variants whose handler takes this problem, in order of preference; the dense scores are
    last.
    """
    names = [n for n in NUMBERS[problem.platform] if reason_against(problem, n) is None]
    if problem.gradient and problem.platform == "cuda":
        names.sort(key=_GRADIENTS.index)
    return Offer((*names, DENSE))


def against(problem: AttentionProblem) -> dict[str, str]:
    """Name -> why that variant does not take the problem."""
    reasons = {name: reason_against(problem, name) for name in NUMBERS[problem.platform]}
    return {name: why for name, why in reasons.items() if why}


def reason_against(problem: AttentionProblem, variant: str) -> str | None:
    """Why `variant` does not take this problem, or None. The handlers refuse by the same rules."""
    depths = problem.q[3], problem.v_depth
    batch, q_len, heads, _ = problem.q
    if problem.platform == "cpu":
        return None
    if max(depths) > MOST_DEPTH:
        return f"heads of {max(depths)}; the kernels take {MOST_DEPTH} at most"
    longest = max(-(-q_len // 16), -(-problem.k[1] // 16))
    if math.prod((batch, heads, longest)) >= 2**31:
        return "2^31 tiles or more"
    if variant == "mma":
        return None
    if problem.dtype not in HALF:
        return "it takes 16-bit operands"
    if variant == "split":
        return _against_split(problem)
    reduces = variant == "wgmma_reduce"
    if depths not in HOPPER_DEPTHS:
        return f"heads of {depths}; it takes {', '.join(map(str, HOPPER_DEPTHS))}"
    if reduces and problem.block_size[1] % REDUCE_KEYS:
        return f"blocks of {problem.block_size[1]} keys; it takes multiples of {REDUCE_KEYS}"
    if reduces and problem.ordered:
        return "it adds up dq in no fixed order, and js.config(deterministic=True) is in force"
    if problem.added or not 0 < np.float32(problem.scale) < np.inf:
        return "scores have a soft cap, slopes, a bias, or a scale that is not positive and finite"
    block_q, block_kv = problem.block_size
    if problem.slots * block_q * -(-block_kv // 32) >= 2**31:
        return "the mask has 2^31 words or more"
    if batch * q_len * heads >= 2**31:
        return "2^31 rows of queries or more"
    if not is_hopper():
        return "the device is not of compute capability 9.0"
    return None


def _against_split(problem: AttentionProblem) -> str | None:
    if problem.gradient:
        return "it computes no gradients"
    if problem.q[1] > SPLIT_QUERIES:
        return f"{problem.q[1]} queries; it takes {SPLIT_QUERIES} at most"
    if problem.q[0] * problem.q[1] * problem.q[2] >= 2**31:
        return "2^31 rows of queries or more"
    return None


CHOOSER = register(Chooser(OP, AttentionProblem, candidates, against))
