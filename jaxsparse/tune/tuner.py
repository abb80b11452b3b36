"""What `js.tune` does: from the ops in a function, through measurements, to a tuning table."""

import hashlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import msgspec
import numpy as np
from rich.console import Console
from rich.progress import Progress

from jaxsparse.bench.report.provenance import provenance
from jaxsparse.core.device import device_kind
from jaxsparse.index import TileIndex
from jaxsparse.select.problem import Problem
from jaxsparse.select.sites import Site, watch
from jaxsparse.select.table import TuningTable
from jaxsparse.testing import make_masks
from jaxsparse.tune.cache import CostCache
from jaxsparse.tune.costs import Costs
from jaxsparse.tune.measure import index_of, measure_site


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
    masks: list[Any],
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
    masks: list[Any], shape: tuple[int, int, int], densities: Sequence[float]
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
