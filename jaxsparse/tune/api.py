"""`js.tune`: its arguments checked. What measures is loaded when it is first called, so that
`import jaxsparse` stays short.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import jax
import numpy as np

from jaxsparse.select.table import TuningTable

DENSITIES = (0.02, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0)
MaskName = Literal["blobs", "fine_blobs", "edges", "rectangles", "random"]
Masks = MaskName | Sequence[MaskName] | Sequence[np.ndarray | jax.Array] | np.ndarray | jax.Array


def tune(
    fn: Callable[..., object],
    *args: object,
    masks: Masks = "blobs",
    densities: float | Sequence[float] = DENSITIES,
    size: int = 6,
    least: int = 1,
    calls: int = 10,
    samples: int = 7,
    share: float = 1.0,
    budget: int | None = None,
    minutes: float | None = None,
    seed: int = 0,
    merge: bool = True,
    cache: bool | str | Path = True,
    progress: bool = True,
) -> TuningTable:
    """Measure the variants of every op that `fn(*args)` calls and that has several, and make a
    table of which to run: for each problem a ladder (variants ordered by density), and rates, from
    which a GPU chooses by itself. What `js.pruned.tune` measured for one weight takes precedence
    over the table.

    Ops with a `TileIndex` (`masked_conv`, `masked_dense`) are measured on `masks`. The others are
    measured on what a run of `fn(*args)` gives them: masks, lists of blocks, group sizes,
    activations. `masked_matmul`, `grouped_matmul` and the products of `sparse_ffn` are measured on
    data drawn at `densities`, too.

    Every fourth mask is held out of the search. Where the choice from the new table is slower on
    the held-out masks than that from the shipped one, for `selection=None`, `"static"` or
    `"switch"`, the problem keeps the shipped choice. Fewer than four masks are all used for both.
    The ladder's variants are the greedy choice of at most `size` (within 1 - 1/e of the best set;
    DynaSpa, section 3.2).

    Use the result with `js.config(tuning=table)`; `table.save(path)` keeps it, and
    `js.TuningTable.load(path)` reads it.

    Args:
        fn: a function that may be jitted. It is run once where an op in it has no `TileIndex`, else
            traced alone; gradients in it are tuned as well.
        *args: its arguments: arrays, or pytrees of them. Shapes (`jax.ShapeDtypeStruct`) suffice
            where no op is measured on what a run gives it.
        masks: what ops with a `TileIndex` will see: the names of generators ("blobs", "fine_blobs",
            "edges", "rectangles", "random"), or masks bool[B, H, W] from real data (one, or a
            sequence of them), which are scaled to each op's size.
        densities: shares of active pixels (blocks, rows) to draw named masks and data at, at least
            one.
        size: the most variants in a ladder (the dense operation counts), at least 1.
        least: the least number of variants in a ladder, also where fewer are as fast: each is put
            where it costs least. Above 1, the dense operation is among them. At most `size`; there
            are no more than densities that were measured and variants that ran.
        calls: in a timed chain, at least 1.
        samples: timed rounds, at least 1.
        share: the share of the measurements (variants times masks) that a search makes to find the
            at most `size` variants that are then measured on every mask; 1 measures all, without
            a search. A learned cost model proposes what to measure (DynaSpa, Algorithm 1); it needs
            scikit-learn (`pip install 'jaxsparse[tune]'`). What the shipped table chooses is
            measured, too.
        budget: how many measurements to make over all problems, each of one variant on one mask;
            each problem is measured on one mask at least. None has no limit.
        minutes: the time after which no further mask is begun; None has no limit. What `budget` and
            `minutes` leave out is measured by the next call with the same arguments and a cache.
        seed: decides the order in which masks are measured, and so which are held out.
        merge: return the shipped table of this device with what was measured in it; False returns
            that alone.
        cache: keep measurements in the user's cache, or in this folder, after each mask, and take
            them from there; False neither reads nor keeps any.
        progress: a progress bar on standard error.

    Returns:
        A TuningTable for this machine's device, one entry for each different problem that was
        measured, and the shipped ones with `merge`.

    Raises:
        TypeError, ValueError: for a wrong option, naming it; when no op in `fn` has variants to
            choose among here; for a mask or density that does not exist.

    Warns:
        RuntimeWarning: for a variant that failed or gave a wrong result, and for an op whose data
            is not known from shapes alone; they are left out.
    """
    from jaxsparse.tune import tuner
    from jaxsparse.tune.cache import CostCache, default_folder

    for name, given in (("size", size), ("least", least), ("calls", calls), ("samples", samples)):
        if isinstance(given, bool) or not isinstance(given, (int, np.integer)) or given < 1:
            raise ValueError(f"{name}={given!r}; it takes an int of 1 or more")
    if least > size:
        raise ValueError(f"least={least} is above size={size}")
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 1:
        raise ValueError(f"share={share!r}; it takes a number above 0, up to 1")
    if budget is not None and (isinstance(budget, bool) or not isinstance(budget, int)):
        raise TypeError(f"budget={budget!r}; it takes an int of 1 or more, or None")
    if budget is not None and budget < 1:
        raise ValueError(f"budget={budget!r}; it takes an int of 1 or more, or None")
    if minutes is not None and not minutes > 0:
        raise ValueError(f"minutes={minutes!r}; it takes a number above 0, or None")
    if not callable(fn):
        raise TypeError(f"fn must be callable, not {type(fn).__name__}")
    if not isinstance(cache, (bool, str, Path)):
        raise TypeError(f"cache must be a bool or a folder, not {type(cache).__name__}")
    densities, masks = _densities(densities), _masks(masks)
    _check_names(masks)
    if not densities and isinstance(masks[0], str):
        raise ValueError("densities is empty: named masks need at least one")
    sites = tuner.sites_of(fn, *args)
    if not sites:
        raise ValueError("fn calls no op that has variants on this platform: nothing to tune")
    seen = tuner.seen_by(sites, fn, *args)
    sites, rows = tuner.rows_of(sites, seen, masks, densities, seed)
    if not sites:
        raise ValueError("no op of fn can be measured on shapes alone: give arrays as arguments")
    folder = default_folder() if cache is True else None if cache is False else Path(cache)
    look = functools.partial(tuner.sites_of, fn, *args)
    plan = None
    if share < 1:
        plan = tuner.Plan(float(share), size, seed, tuner.shipped_names(look))
    measured = tuner.measure(
        sites,
        rows,
        calls=calls,
        samples=samples,
        cache=CostCache(folder),
        progress=progress,
        budget=tuner.Budget(budget, minutes),
        plan=plan,
    )
    return tuner.tuned(
        look,
        sites,
        measured,
        size,
        least=least,
        merge=merge,
    )


def _densities(given: Any) -> tuple[float, ...]:
    """`densities` as a tuple of shares."""
    try:
        found = tuple(float(d) for d in (given if np.ndim(given) else (given,)))
    except (TypeError, ValueError) as error:
        raise TypeError(f"densities={given!r}; it takes numbers from 0 to 1") from error
    if not all(0 <= d <= 1 for d in found):
        raise ValueError(f"densities={given!r}; it takes numbers from 0 to 1")
    return found


def _masks(given: Any) -> list[Any]:
    """`masks` as a list of names or of arrays, one array bool[B, H, W] as a list of it."""
    if isinstance(given, str) or (hasattr(given, "ndim") and given.ndim == 3):
        return [given]
    if not isinstance(given, Iterable):
        raise TypeError(f"masks takes names or bool[B, H, W] arrays, not {type(given).__name__}")
    found = list(given)
    if not found:
        raise ValueError("masks is empty")
    return found


def _check_names(masks: Sequence[Any]) -> None:
    """Every name is that of a generator."""
    known = get_args(MaskName)
    unknown = [m for m in masks if isinstance(m, str) and m not in known]
    if unknown:
        raise ValueError(f"masks={unknown[0]!r} is not one of {', '.join(known)}")
