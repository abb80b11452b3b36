"""Feed-forward networks by name, with the tags of `cases`: "cpu", "gpu", "quick"."""

import dataclasses
import statistics

import numpy as np


@dataclasses.dataclass(frozen=True)
class FfnCase:
    """x[tokens, d] through `f` activations to [tokens, d], with a gate or without."""

    name: str
    tokens: int
    d: int
    f: int
    gated: bool
    tags: frozenset[str] = frozenset()

    def steered(self, zeros: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """x and the first weight (of the gate, where there is one), float32: that share of the
        activations is zero on average, each token's own.

        Column 0 of x is 1, so row 0 of the weight is a bias: the quantile of normal numbers.
        """
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((self.tokens, self.d), np.float32)
        x[:, 0] = 1
        weight = rng.standard_normal((self.d, self.f), np.float32)
        weight /= np.float32((self.d - 1) ** 0.5)
        weight[0] = self.bias(zeros)
        return x, weight

    def bias(self, zeros: float) -> float:
        """What a normal number of variance 1 is added to, so that it is below 0 with this share."""
        return -statistics.NormalDist().inv_cdf(zeros)


def _case(tags: str, tokens: int, d: int, f: int, gated: bool) -> FfnCase:
    name = f"t{tokens}_{d}x{f}" + ("_gated" if gated else "")
    return FfnCase(name, tokens, d, f, gated, frozenset(tags.split()))


#: OPT's and Llama's widths.
_PLAIN, _GATED = ((768, 3072), (2048, 8192)), ((2048, 5632), (4096, 14336))
_ALL = (
    *(_case("cpu", t, 768, 3072, False) for t in (1, 4, 16, 256)),
    *(_case("cpu", t, 2048, 5632, gated) for t in (1, 4) for gated in (False, True)),
    *(_case("gpu", t, d, f, False) for d, f in _PLAIN for t in (1, 4, 8, 16, 1024, 16384)),
    *(_case("gpu", t, d, f, gated) for d, f in _GATED for t in (1, 8) for gated in (False, True)),
    *(_case("gpu", t, 2048, 5632, True) for t in (16, 1024, 16384)),
    _case("quick", 3, 16, 40, True),
)

#: Name -> case of `sparse_ffn`.
FFN_CASES = {one.name: one for one in _ALL}
