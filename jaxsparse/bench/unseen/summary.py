"""What a draw says: speed-ups by density, the share that loses to dense, regret, rank correlation,
and the worst.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from jaxsparse.bench.unseen.draw import BANDS
from jaxsparse.bench.unseen.run import Seen

#: A call loses to dense below this speed-up; from `LOST` on it is noise.
LOST = 0.91
#: No call may fall below this one.
NEVER = 0.8
#: Dense calls shorter than this, in microseconds, are not part of the geometric means.
SHORT = 25.0


def summary(seen: Sequence[Seen]) -> Iterator[tuple[str, str]]:
    """(what, figure) of the problems of one op and dtype, in the order in which they are read."""
    yield "problems", f"{len(seen)}, of which {sum(bool(s.wrong) for s in seen)} with a fault"
    yield from _against("XLA dense", seen, lambda s: s.over_dense, lambda s: s.dense)
    yield from _against("torch", seen, lambda s: s.over_torch, lambda s: s.torch)
    regrets = _known(s.regret for s in seen)
    if regrets.size:
        yield "regret, mean / worst", f"{regrets.mean():.1%} / {regrets.max():.1%}"
        yield "within 5 % of the best", f"{(regrets <= 0.05).mean():.0%}"
    if (rank := rank_correlation(seen)) is not None:
        yield "expected and measured times, rank correlation", f"{rank:.3f}"


def _against(
    name: str,
    seen: Sequence[Seen],
    ratio: Callable[[Seen], float | None],
    other: Callable[[Seen], float | None],
) -> Iterator[tuple[str, str]]:
    ratios = _known(map(ratio, seen))
    if not ratios.size:
        return
    under = f"{(ratios < LOST).mean():.1%} / {(ratios < NEVER).mean():.1%}"
    yield f"{name}: under {LOST}x / {NEVER}x", f"{under}, worst {ratios.min():.2f}x"
    for band in BANDS:
        long = [s for s in seen if (other(s) or 0) >= SHORT and s.density == band]
        found = _known(map(ratio, long))
        if found.size:
            figure = f"{geomean(found):.2f}x of {found.size}, worst {found.min():.2f}x"
            yield f"{name}, {SHORT:g} us or more, density {band:g}: geomean", figure
    yield f"{name}: geomean of all", f"{geomean(ratios):.2f}x"


def told(one: Seen) -> str:
    """A problem in a line: how it compares, what it takes, and whether the choice was the best."""
    over = "no figure" if one.over_dense is None else f"{one.over_dense:.2f}x dense"
    regret = "" if one.regret is None else f", regret {one.regret:.0%}"
    best = min(one.variants, key=lambda name: one.variants[name], default="")
    fastest = f", fastest {best} {one.variants[best]:.1f} us" if best else ""
    took = f"dense {_us(one.dense)}, ours {_us(one.ours)}{fastest}"
    return f"{one.problem}: {over}{regret}; {took}"


def _us(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} us"


def markdown(title: str, seen: Sequence[Seen]) -> Iterator[str]:
    """The lines of a result: the summary, and the worst ten with what `js.explain` says."""
    yield from (f"## {title}", "", "| | |", "|---|---|")
    yield from (f"| {what} | {figure} |" for what, figure in summary(seen))
    yield from ("", "The worst:", "")
    for one in worst(seen):
        yield f"- {told(one)}"
        yield from (f"  - {line.strip()}" for line in (*one.wrong, *one.why.splitlines()[:3]))
    yield ""


def rank_correlation(seen: Iterable[Seen]) -> float | None:
    """Spearman's, of expected and measured times of every variant that has both."""
    from scipy.stats import spearmanr

    pairs = [
        (s.expected[name], s.variants[name])
        for s in seen
        for name in s.expected.keys() & s.variants.keys()
    ]
    if len(pairs) < 3:
        return None
    result: Any = spearmanr(np.asarray(pairs))
    return float(result.statistic)


def worst(seen: Iterable[Seen], count: int = 10) -> list[Seen]:
    """Those with the least speed-up over dense, worst first; faults before all."""
    return sorted(seen, key=lambda s: (not s.wrong, s.over_dense or np.inf))[:count]


def geomean(values: np.ndarray) -> float:
    """The geometric mean of positive values."""
    return float(np.exp(np.log(values).mean()))


def _known(values: Iterable[float | None]) -> np.ndarray:
    return np.asarray([v for v in values if v is not None])
