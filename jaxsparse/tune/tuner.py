"""`js.tune`: from the ops in a function, through measurements, to a tuning table."""

import hashlib
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np
from rich.console import Console
from rich.progress import Progress

from jaxsparse.bench.provenance import provenance
from jaxsparse.index import TileIndex
from jaxsparse.select.select import Problem, device_kind
from jaxsparse.select.sites import Site, watch
from jaxsparse.select.table import TuningTable
from jaxsparse.testing import make_masks
from jaxsparse.tune.cache import CostCache, default_folder
from jaxsparse.tune.costs import Costs
from jaxsparse.tune.measure import index_of, measure_site

DENSITIES = (0.02, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0)
Masks = str | Sequence[str] | Sequence[Any] | np.ndarray | jax.Array


def tune(
    fn: Callable[..., Any],
    *args: Any,
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
    sites = sites_of(fn, *args)
    if not sites:
        raise ValueError(
            "fn calls no jaxsparse op that has variants on this platform: nothing to tune "
            "(js.pruned.tune measures a frozen weight's)"
        )
    folder = default_folder() if cache is True else None if cache is False else Path(cache)
    measured = measure(
        sites,
        masks=masks,
        densities=densities,
        calls=calls,
        samples=samples,
        cache=CostCache(folder),
        progress=progress,
    )
    return table_of(sites, measured, size, least=least)


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


def sites_of(fn: Callable[..., Any], *args: Any) -> list[Site]:
    """The different problems of `fn(*args)` on this machine's platform, of ops with a `TileIndex`.

    Warns:
        RuntimeWarning: naming the ops that have variants but no `TileIndex`.
    """
    platform = {"gpu": "cuda"}.get(jax.default_backend(), jax.default_backend())
    found = [s for s in watch(fn, *args) if s.problem.platform == platform]
    indexed = [s for s in found if any(isinstance(o, TileIndex) for o in s.operands)]
    others = {s.problem.op for s in found} - {s.problem.op for s in indexed}
    if others:
        warnings.warn(
            f"not tuned: {', '.join(sorted(others))}: the tuner needs an op with a TileIndex",
            RuntimeWarning,
            stacklevel=3,
        )
    found = indexed
    return list({msgspec.json.encode(_problem_key(s)): s for s in found}.values())


def measure(
    sites: Sequence[Site],
    *,
    masks: Masks,
    densities: Sequence[float],
    calls: int,
    samples: int,
    cache: CostCache,
    progress: bool,
) -> list[Costs]:
    """The costs of each site, from the cache where they are kept there."""
    costs = []
    with Progress(console=Console(stderr=True), transient=True, disable=not progress) as bar:
        task = bar.add_task("tuning", total=len(sites))
        for site in sites:
            drawn = draw_masks(masks, index_of(site).shape, densities)
            key = _key(site, drawn, calls, samples)
            found = cache.get(key)
            if found is None:
                label = f"{site.problem.op} {site.problem.dtype}"
                found = measure_site(
                    site,
                    drawn,
                    calls=calls,
                    samples=samples,
                    on_step=lambda name, text=label: bar.update(
                        task, description=f"{text}: {name}"
                    ),
                )
                cache.put(key, found)
            costs.append(found)
            bar.advance(task)
    return costs


def table_of(
    sites: Sequence[Site],
    costs: Sequence[Costs],
    size: int,
    tile: tuple[int, int] | None = None,
    *,
    least: int = 1,
) -> TuningTable:
    """The table of measured sites; its tile is `tile`, else the first site's.

    Sites that a table cannot tell apart (a forward and a backward call of equal features) share an
    entry.
    """
    platform = sites[0].problem.platform
    where = provenance()
    alike: dict[bytes, tuple[Problem, Costs]] = {}
    for site, found in zip(sites, costs, strict=True):
        key = msgspec.json.encode((site.problem.op, site.problem.dtype, site.problem.features))
        before = alike.get(key)
        alike[key] = site.problem, before[1].joined(found) if before else found
    entries = [found.entry(problem, size, least) for problem, found in alike.values()]
    versions = ", ".join(f"{k} {v}" for k, v in where.versions.items())
    return TuningTable(
        device=device_kind(platform),
        measured=f"{where.date}, {where.device}, commit {where.commit or '?'}, {versions}",
        entries=tuple(entries),
        tile=tile or index_of(sites[0]).tile,
    )


def draw_masks(
    masks: Masks, shape: tuple[int, int, int], densities: Sequence[float]
) -> list[np.ndarray]:
    """Masks of a shape: each named generator at each density, or real ones scaled to it.

    Raises:
        TypeError, ValueError: for what is neither.
    """
    given = [masks] if isinstance(masks, str) else list(masks)
    names = [m for m in given if isinstance(m, str)]
    if names and len(names) != len(given):
        raise TypeError("masks takes names or bool[B, H, W] arrays, not both")
    if names:
        return [make_masks(name, shape, d)[0] for name in names for d in densities]
    if not given:
        raise ValueError("masks is empty")
    return [scale(np.asarray(m), shape) for m in given]


def scale(mask: np.ndarray, shape: tuple[int, int, int]) -> np.ndarray:
    """A mask bool[B, H, W] at another size: the nearest pixels, images repeated or dropped."""
    if mask.dtype != np.bool_ or mask.ndim != 3 or 0 in mask.shape:
        raise TypeError(f"a mask is bool[B, H, W], not {mask.dtype}{list(mask.shape)}")
    rows = [np.arange(n) * m // n for n, m in zip(shape[1:], mask.shape[1:], strict=True)]
    return mask[np.arange(shape[0]) % mask.shape[0]][:, rows[0]][:, :, rows[1]]


def _problem_key(site: Site) -> dict[str, Any]:
    """What tells sites apart: the problem and every operand's shape."""
    index = index_of(site)
    return {
        "op": site.problem.op,
        "dtype": site.problem.dtype,
        "features": site.problem.features,
        "operands": [f"{a.dtype}{list(a.shape)}" for a in jax.tree.leaves(site.operands)],
        "index": [list(index.tile), list(index.shape), index.capacity, index.align],
        "variants": list(site.branches),
    }


def _key(site: Site, masks: Sequence[np.ndarray], calls: int, samples: int) -> dict[str, Any]:
    where = provenance()
    return {
        **_problem_key(site),
        "device": where.device,
        "versions": where.versions,
        "commit": where.commit,
        "masks": [hashlib.sha256(np.packbits(m).tobytes()).hexdigest()[:16] for m in masks],
        "calls": calls,
        "samples": samples,
    }
