"""`jaxsparse tune`: tune cases by name into a table, or into the tables that are shipped."""

import functools
from pathlib import Path
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from jaxsparse.bench.command import find_cases, parse_tile, platform_tag
from jaxsparse.bench.report.report import make_folders
from jaxsparse.index import tile_index
from jaxsparse.ops import masked_conv
from jaxsparse.select.sites import Site
from jaxsparse.select.table import TuningTable
from jaxsparse.testing import ConvCase
from jaxsparse.tune.api import DENSITIES
from jaxsparse.tune.cache import CostCache, default_folder
from jaxsparse.tune.tuner import (
    Budget,
    Plan,
    measure,
    rows_of,
    shipped_names,
    sites_of,
    tuned,
)


def tune(
    case_names: Annotated[
        list[str] | None,
        typer.Option(
            "--case",
            help="A case, or a tag: cpu, gpu, odd, quick. Repeatable. Default: all cases of this "
            "platform, which takes minutes; --minutes bounds it.",
        ),
    ] = None,
    mask: Annotated[list[str] | None, typer.Option(help="Masks by name. Repeatable.")] = None,
    density: Annotated[list[float] | None, typer.Option(help="0 to 1. Repeatable.")] = None,
    dtype: Annotated[list[str] | None, typer.Option(help="As in bench. Repeatable.")] = None,
    tile: Annotated[
        list[str] | None, typer.Option(help="Tiles to try, as 2x4; the best is kept. Repeatable.")
    ] = None,
    size: Annotated[int, typer.Option(min=1, help="The most variants in a ladder.")] = 6,
    least: Annotated[int, typer.Option(min=1, help="The least, dense among them.")] = 1,
    calls: Annotated[int, typer.Option(min=1, help="Calls in a chain.")] = 10,
    samples: Annotated[int, typer.Option(min=1, help="Timed rounds.")] = 7,
    share: Annotated[
        float, typer.Option(help="Of the measurements, that a search makes; 1 makes all.")
    ] = 1.0,
    budget: Annotated[
        int | None, typer.Option(min=1, help="The most measurements, a variant on a mask each.")
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Begin no mask after that.")] = None,
    seed: Annotated[int, typer.Option(help="Of the order of the masks.")] = 0,
    merge: Annotated[bool, typer.Option(help="Put it into the shipped table.")] = True,
    out: Annotated[Path | None, typer.Option(help="Write the table here, as JSON.")] = None,
    cache: Annotated[bool, typer.Option(help="Take and keep measurements.")] = True,
) -> None:
    """Measure variants into a tuning table.

    Every variant runs on cases by name; the table is for this machine's device.
    """
    console = Console()
    try:
        if least > size:
            raise ValueError(f"--least {least} is above --size {size}")
        if not 0 < share <= 1:
            raise ValueError(f"--share {share}: it takes a number above 0, up to 1")
        make_folders(out)
        chosen = find_cases(case_names or [platform_tag()])
        tiles = [t for t in map(parse_tile, tile or ["1x1"]) if t is not None]
        best: tuple[float, TuningTable] | None = None
        for each in tiles:
            look = functools.partial(_all_sites, chosen, dtype or ["float32"], each)
            sites = look()
            if not sites:
                raise ValueError("no variants on this platform: nothing to tune")
            sites, rows = rows_of(sites, {}, list(mask or ["blobs"]), density or DENSITIES, seed)
            console.print(f"{len(sites)} convolutions, {sum(map(len, rows))} masks")
            costs = measure(
                sites,
                rows,
                calls=calls,
                samples=samples,
                cache=CostCache(default_folder() if cache else None),
                progress=True,
                budget=Budget(budget, minutes),
                plan=Plan(share, size, seed, shipped_names(look)) if share < 1 else None,
            )
            score = float(np.mean([np.log(c.best()) for c in costs]))
            if best is None or score < best[0]:
                best = score, tuned(look, sites, costs, size, each, least=least, merge=merge)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    assert best is not None
    _show(best[1], console)
    if out is not None:
        best[1].save(out)


def _all_sites(cases: list[ConvCase], dtypes: list[str], tile: tuple[int, int]) -> list[Site]:
    return [site for case in cases for dtype in dtypes for site in _sites(case, dtype, tile)]


def _sites(case: ConvCase, dtype: str, tile: tuple[int, int]) -> list[Site]:
    kind = jnp.dtype("float32" if dtype == "highest" else dtype)
    precision = jax.lax.Precision.HIGHEST if dtype == "highest" else None

    def call(x: jax.Array, kernel: jax.Array, mask: jax.Array) -> jax.Array:
        return masked_conv(x, kernel, tile_index(mask, tile), precision=precision, **case.options)

    return sites_of(
        call,
        jax.ShapeDtypeStruct(case.x_shape, kind),
        jax.ShapeDtypeStruct(case.kernel_shape, kind),
        jax.ShapeDtypeStruct(case.mask_shape, bool),
    )


def _show(table: TuningTable, console: Console) -> None:
    shown = Table(title=f"{table.device}, tile {table.tile[0]}x{table.tile[1]}")
    for head in ("op", "dtype", "problem", "static", "ladder (up to tile density)"):
        shown.add_column(head)
    for entry in table.entries:
        features = ", ".join(f"{k} {v:g}" for k, v in entry.features.items())
        rungs = ", ".join(f"{r.variant} {r.up_to:.2f}" for r in entry.ladder)
        shown.add_row(entry.op, entry.dtype, features, entry.static, rungs)
    console.print(shown)
