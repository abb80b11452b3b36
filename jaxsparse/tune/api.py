"""`js.tune`: its arguments checked. What measures is loaded when it is first called, so that
`import jaxsparse` stays short.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

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
    size: int = 4,
    least: int = 1,
    calls: int = 10,
    samples: int = 7,
    cache: bool | str | Path = True,
    progress: bool = True,
) -> TuningTable:
    """Measure every variant of every op with a `TileIndex` (`masked_conv`) that `fn(*args)` calls,
    and tabulate which to run at which density. Other ops keep the tables that are shipped; for
    frozen weights see `js.pruned.tune`.

    Use the result with `js.config(tuning=table)`; `table.to_json()` keeps it, and
    `jaxsparse.select.table.TuningTable.from_json` reads it. It holds ladders and no rates:
    `selection="device"` is `"static"` under it, as `js.explain` says (docs/selection.md).

    Args:
        fn: a function that may be jitted. It is traced, not run; gradients in it are tuned as well.
        *args: its arguments: arrays, their shapes (`jax.ShapeDtypeStruct`), or pytrees of them.
        masks: what the ops will see: the names of generators ("blobs", "fine_blobs", "edges",
            "rectangles", "random"), or masks bool[B, H, W] from real data (one, or a sequence of
            them), which are scaled to each op's size.
        densities: shares of active pixels to draw named masks at, at least one.
        size: the most variants in a ladder (the dense operation counts), at least 1.
        least: the least variants in a ladder, the dense operation among them where it is above 1,
            also where fewer are as fast: each is put where it costs least. At most `size`; there
            are no more than densities that were measured and variants that ran.
        calls: in a timed chain, at least 1.
        samples: timed rounds, at least 1.
        cache: keep measurements in the user's cache, or in this folder, and take them from there;
            False measures anew.
        progress: a progress bar on standard error.

    Returns:
        A TuningTable for this machine's device, one entry for each different problem.

    Raises:
        TypeError, ValueError: for a wrong option, naming it; when no op in `fn` has variants to
            choose among here; for a mask or density that does not exist.

    Warns:
        RuntimeWarning: for a variant that failed or gave a wrong result, and for an op with
            variants but no `TileIndex`; they are left out.
    """
    from jaxsparse.tune import tuner
    from jaxsparse.tune.cache import CostCache, default_folder

    for name, given in (("size", size), ("least", least), ("calls", calls), ("samples", samples)):
        if isinstance(given, bool) or not isinstance(given, (int, np.integer)) or given < 1:
            raise ValueError(f"{name}={given!r}; it takes an int of 1 or more")
    if least > size:
        raise ValueError(f"least={least} is above size={size}")
    if not isinstance(cache, (bool, str, Path)):
        raise TypeError(f"cache must be a bool or a folder, not {type(cache).__name__}")
    densities, masks = _densities(densities), _masks(masks)
    if not densities and isinstance(masks[0], str):
        raise ValueError("densities is empty: named masks need at least one")
    sites = tuner.sites_of(fn, *args)
    if not sites:
        raise ValueError(
            "fn calls no jaxsparse op that has variants on this platform: nothing to tune "
            "(js.pruned.tune measures a frozen weight's)"
        )
    folder = default_folder() if cache is True else None if cache is False else Path(cache)
    measured = tuner.measure(
        sites,
        masks=masks,
        densities=densities,
        calls=calls,
        samples=samples,
        cache=CostCache(folder),
        progress=progress,
    )
    return tuner.table_of(sites, measured, size, least=least)


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
