"""Which variants of `masked_conv` stand beside each other in one call that chooses on the device.

Two kinds of call (docs/kernels/masked_conv.md): rows of one CTA a tile beside those of pairs of
CTAs, which share weights or split K, or beside those that split K over four, for calls of few
tiles.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from jaxsparse.select.costs import EVERY, Candidate, cheapest, costs_on, typical
from jaxsparse.select.portfolio import greedy
from jaxsparse.select.table import Measured
from jaxsparse.select.variants import Variant, table

#: The most candidates of one call (docs/contract.md).
MOST = 8
#: A candidate that lowers the mean share of the best by less than this is left out.
LEAST_GAIN = 0.001
#: No call takes less, whatever a line through measurements says.
LEAST_US = 0.01
_MEASURED = Measured("masked_conv", "cuda")
#: The CTAs of a cluster where the device chooses.
PARTS = (1, 2, 4)


def held(row: Variant) -> bool:
    """Whether a kernel that chooses holds this variant: one CTA wide, sharing weights between two,
    or splitting K over two or four.
    """
    return row.fields.get("cluster") in (1, 2) and parts(row) in PARTS


def parts(row: Variant) -> int:
    """The CTAs of a cluster, which share weights or the K of one tile."""
    return row.fields.get("cluster", 1) * row.fields.get("split_k", 1)


def splits(row: Variant) -> bool:
    """Whether several CTAs share the K of one tile."""
    return row.fields.get("split_k", 1) > 1


def best_few(
    platform: str,
    tiles: tuple[int, ...],
    found: Mapping[str, Candidate],
    in_fours: Callable[[], Mapping[str, Candidate]],
) -> tuple[Candidate, ...]:
    """The few candidates of one call that together are near the best of all at every density; a
    dense one, which needs no list, is among them where the index cannot overflow.

    Args:
        platform: "cuda" or "cpu".
        tiles: of a full mask, list by list.
        found: name -> candidate, what each costs in a call without clusters or in pairs.
        in_fours: asked where rows split K over four: what each costs in clusters of four.
    """
    rows = table("masked_conv", platform)

    def clustered(stand: list[Candidate], cluster: int) -> tuple[Candidate, ...]:
        return _few(tiles, [c for c in stand if parts(rows[c.variant]) in (1, cluster)])

    stand = _standing(rows, found.values(), platform)
    chosen = clustered(stand, 2)
    if any(parts(rows[c.variant]) == 4 for c in stand):
        fours = clustered(_standing(rows, in_fours().values(), platform), 4)
        helps = any(parts(rows[c.variant]) == 4 for c in fours)
        if helps and _share(tiles, fours, chosen) < 1.0:
            chosen = fours
    return chosen


def _standing(
    rows: Mapping[str, Variant], found: Iterable[Candidate], platform: str
) -> list[Candidate]:
    """Those of `found` that some kernel holds; on a GPU mma.sync rows, whose kernel would be
    launched beside the others', only where there are no others.
    """
    known = [c for c in found if c.variant in rows]
    if platform == "cpu":
        return known
    stand = [_beside(rows[c.variant], c) for c in known if held(rows[c.variant])]
    return [c for c in stand if not rows[c.variant].fields.get("mma")] or stand


def _beside(row: Variant, c: Candidate) -> Candidate:
    """What the candidate costs beside others in one call. mma.sync rows of 64 columns take longer:
    the kernel that holds all leaves two CTAs a multiprocessor, alone they have three or four.
    """
    if not row.fields.get("mma") or row.fields["tile_n"] > 64:
        return c
    start, each, place, wave, per_wave = c.cost
    slower = _MEASURED("narrow_beside")
    return c._replace(cost=(start * slower, each * slower, place, wave * slower, per_wave))


def _few(tiles: tuple[int, ...], stand: list[Candidate]) -> tuple[Candidate, ...]:
    if not stand:
        return ()
    cost = _costs(tiles, stand)
    # Shares of the best of each mask: a sparse one counts as much as a full one.
    cost /= cost.min(1, keepdims=True)
    chosen = [stand[i] for i in greedy(cost, MOST - 1, least_gain=LEAST_GAIN)]
    dense = [c for c in stand if c.list == EVERY]
    if dense and not any(c.list == EVERY for c in chosen):
        chosen.append(cheapest(dense))
    return tuple(chosen)


def _share(tiles: tuple[int, ...], these: Sequence[Candidate], those: Sequence[Candidate]) -> float:
    """How long these take of the time of those, on the mean over typical masks."""
    if not those:
        return 0.0
    return float(np.mean(_costs(tiles, these).min(1) / _costs(tiles, those).min(1)))


def _costs(tiles: tuple[int, ...], candidates: Sequence[Candidate]) -> np.ndarray:
    """Microseconds [masks, candidates] on typical masks."""
    return np.maximum(costs_on(candidates, typical(tiles)), LEAST_US)
