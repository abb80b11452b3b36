"""The regret of the search by the share of its measurements (DynaSpa, Figure 16), and what k
variants reach together (k = 1, 2, 4, 6, 8), over the shapes of the shipped H200 sweeps. No GPU is
used: a measurement is the time that the rates fitted to a sweep give, with 3 % of noise.

    python benchmarks/masked_conv/search.py --out search.md --picture search.svg
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "select"))
from choice_answers import every_table

from jaxsparse.select.portfolio import greedy, set_cost
from jaxsparse.select.table import shipped
from jaxsparse.tune.search.algorithm import quality, search
from jaxsparse.tune.search.swept import Space, spaces

SHARES = (0.02, 0.05, 0.1)
SIZES = (1, 2, 4, 6, 8)
NOISE = 0.03


def reached(space: Space, share: float, *, bound: bool, size: int = 6, seed: int = 0) -> float:
    """The exhaustive search's mean best time over that of the search's portfolio."""
    rng = np.random.default_rng(seed)
    seen = space.times * rng.lognormal(0.0, NOISE, space.times.shape)
    prior = space.bounds if bound else np.ones_like(space.bounds)
    found = search(
        space.features,
        prior,
        lambda v, m: float(seen[v, m]),
        trials=max(1, int(share * space.times.size)),
        size=size,
        seed=seed,
    )
    return quality(space.times, found.chosen, size)


def at_random(space: Space, share: float, seed: int = 0) -> float:
    """The same of random variants, each measured on every mask."""
    most = max(1, round(share * len(space.times)))
    picked = np.random.default_rng(seed).permutation(len(space.times))[:most]
    chosen = [int(picked[i]) for i in greedy(space.times[picked].T, 6)]
    return quality(space.times, chosen)


def curve(space: Space) -> list[float]:
    """The mean best time of k variants over that of all variants."""
    whole = set_cost(space.times.T, range(len(space.times)))
    return [set_cost(space.times.T, greedy(space.times.T, k)) / whole for k in SIZES]


def table(found: Sequence[Space], shares: Sequence[float]) -> tuple[str, np.ndarray]:
    """The lines of the result, and the mean qualities [shares, ways]."""
    ranks = [float(spearmanr(s.times.ravel(), s.bounds.ravel())[0]) for s in found]
    means, lines = [], ["| share of the measurements | search | without the bound | at random |"]
    lines.append("|---|---|---|---|")
    for share in shares:
        ways = [
            [reached(s, share, bound=True) for s in found],
            [reached(s, share, bound=False) for s in found],
            [at_random(s, share) for s in found],
        ]
        means.append([float(np.mean(way)) for way in ways])
        cells = [f"{100 * np.mean(way):.1f} % (worst {100 * min(way):.1f})" for way in ways]
        lines.append(f"| {share:.0%} | {' | '.join(cells)} |")
    curves = np.asarray([curve(s) for s in found])
    lines += ["", "| k | time over that of all variants, mean | worst |", "|---|---|---|"]
    for k, column in zip(SIZES, curves.T, strict=True):
        lines.append(f"| {k} | {column.mean():.3f} | {column.max():.3f} |")
    single = float((curves[:, 0] / curves[:, SIZES.index(6)]).mean())
    lines += [
        "",
        f"Six variants are {single:.3f} times as fast as the best single one, by the mean",
    ]
    lines[-1] += f" over shapes. Spearman of the bound within a shape: {np.mean(ranks):.3f}."
    return "\n".join(lines), np.asarray(means)


def draw(means: np.ndarray, curves: np.ndarray, path: Path) -> None:
    """The two curves as a picture."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, column in zip(("search", "without the bound", "random"), means.T, strict=True):
        left.plot(100 * np.asarray(SHARES), 100 * column, marker="o", label=name)
    left.set(
        xlabel="share of the measurements, %", ylabel="of the exhaustive best, %", xscale="log"
    )
    left.axhline(98, color="grey", linewidth=0.8)
    left.legend()
    right.plot(SIZES, curves, marker="o")
    right.set(xlabel="variants in the portfolio", ylabel="time over that of all variants")
    figure.savefig(path)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--every", type=int, default=1, help="of the shapes, take every n-th")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--picture", type=Path)
    given = parser.parse_args()
    with every_table():  # the GPU's variants, whatever this build has kernels for
        found = list(spaces(shipped()["NVIDIA H200"], given.dtype))[:: given.every]
    print(f"{given.dtype}, {len(found)} shapes: {', '.join(s.name for s in found)}", flush=True)
    text, means = table(found, SHARES)
    print(text)
    if given.out is not None:
        given.out.write_text(text + "\n")
    if given.picture is not None:
        draw(means, np.asarray([curve(s) for s in found]).mean(0), given.picture)


if __name__ == "__main__":
    main()
