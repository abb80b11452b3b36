"""The search itself (DynaSpa, Algorithm 1), on any function that measures a cell."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from jaxsparse.select.portfolio import greedy, set_cost
from jaxsparse.select.roofline.bound import kept
from jaxsparse.tune.search.model import CostModel

#: The size of a portfolio, and the masks of a mini-batch.
SIZE, BATCH = 6, 4
#: Of the cells of a round, the share that is drawn at random.
EXPLORE = 0.1

#: (variant, mask) -> seconds, or None for a variant that failed or was wrong.
Measure = Callable[[int, int], float | None]


@dataclasses.dataclass(frozen=True)
class Found:
    """What a search found.

    Attributes:
        chosen: variants, the best first.
        measured: float[variants, masks], NaN where a cell was not measured, inf where it failed.
        trials: cells that were measured.
    """

    chosen: tuple[int, ...]
    measured: np.ndarray
    trials: int


def search(
    features: np.ndarray,
    prior: np.ndarray,
    measure: Measure,
    *,
    trials: int,
    size: int = SIZE,
    seed: int = 0,
    allows: Callable[[], bool] = lambda: True,
) -> Found:
    """Choose at most `size` variants that together are fast on all masks.

    A round draws a mini-batch of masks and lets the cost model propose, one after the other, the
    variants that lower the mean best time most (the greedy choice of a supermodular function,
    within 1 - 1/e of the best); those are measured, and the model learns. In the end the greedy
    choice is made among the variants that were measured, on all masks.

    Args:
        features: float[variants, masks, n], what the model learns from.
        prior: float[variants, masks], expected times; ones where nothing is known. The variants
            that its means keep (`roofline.bound.kept`) are searched.
        measure: a cell.
        trials: the most cells to measure.
        size: of the portfolio.
        seed: equal seeds and times give equal searches.
        allows: asked before each cell; the search ends where it says no, after one cell at least.

    Raises:
        ValueError: when every cell that was measured failed, or trials < 1.
    """
    if trials < 1:
        raise ValueError(f"trials={trials}; a search measures at least one cell")
    rng, model = np.random.default_rng(seed), CostModel(features, prior, seed)
    measured, spent = np.full(prior.shape, np.nan), 0
    able = np.zeros(len(prior), bool)
    able[kept(list(prior.mean(1)))] = True
    while spent < trials:
        spare = np.flatnonzero(np.isnan(measured[able]).any(0))
        if not len(spare):
            break
        batch = rng.permutation(spare)[:BATCH]
        for variant, mask in _proposed(model, measured, able, batch, size, rng):
            if spent >= trials or (spent and not allows()):
                return _end(model, measured, size, spent)
            us = measure(variant, mask)
            spent += 1
            measured[variant, mask] = np.inf if us is None else us
            if us is None:
                able[variant] = False
                measured[variant] = np.inf
    return _end(model, measured, size, spent)


def _proposed(
    model: CostModel,
    measured: np.ndarray,
    able: np.ndarray,
    batch: np.ndarray,
    size: int,
    rng: np.random.Generator,
) -> list[tuple[int, int]]:
    """The cells of one round: the model's portfolio on the mini-batch, each variant where the model
    gives it the least time of the portfolio first, and cells at random.
    """
    guess: np.ndarray = _completed(model, measured)
    places = np.flatnonzero(able)
    chosen = [int(places[i]) for i in greedy(guess[places][:, batch].T, min(size, len(places)))]
    found = [(v, int(m)) for m in batch for v in chosen if np.isnan(measured[v, m])]
    found.sort(key=lambda cell: guess[cell] / guess[chosen, cell[1]].min())
    open_cells = [(int(v), int(m)) for v in places for m in batch if np.isnan(measured[v, m])]
    # A variant that was never measured is tried before a known one is tried again.
    never = [(v, m) for v, m in open_cells if np.isnan(measured[v]).all()]
    few = max(1, round(EXPLORE * len(found)))
    drawn = never or open_cells
    extra = [drawn[i] for i in rng.permutation(len(drawn))[:few]]
    return list(dict.fromkeys([*extra, *found[: 2 * size]]))


def _completed(model: CostModel, measured: np.ndarray) -> np.ndarray:
    """Measured and predicted times, inf for what failed."""
    failed = np.asarray(np.isinf(measured).any(axis=1))
    guess = model.predict(np.where(np.isinf(measured), np.nan, measured))
    return np.where(failed[:, None], np.inf, guess)


def _end(model: CostModel, measured: np.ndarray, size: int, spent: int) -> Found:
    ran = np.flatnonzero(np.isfinite(measured).any(1))
    if not len(ran):
        raise ValueError("every variant that was measured failed")
    guess = _completed(model, measured)[ran]
    return Found(tuple(int(ran[i]) for i in greedy(guess.T, size)), measured, spent)


def quality(times: np.ndarray, chosen: Sequence[int], size: int = SIZE) -> float:
    """The mean best time of the exhaustive search's portfolio over that of `chosen`: 1 where they
    are as good, and above where the greedy choice is not the best set.

    Args:
        times: float[variants, masks], all of them.
    """
    return set_cost(times.T, greedy(times.T, size)) / set_cost(times.T, chosen)
