"""Every variant of one site on rows of data, masks of several densities among them, in chains of
calls, each output checked.
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsparse.bench.measure.chain import ChainSide, Pool, tolerance
from jaxsparse.bench.measure.timing import Samples, interleave
from jaxsparse.select.sites import Site
from jaxsparse.tune.costs import Costs
from jaxsparse.tune.rows.row import Row

ROTATE_BYTES = 32e6
MAX_SETS = 4
Draw = Callable[[int], jax.Array]


def measure_site(
    site: Site,
    rows: Sequence[Row],
    *,
    calls: int,
    samples: int,
    on_step: Callable[[str], None],
    on_row: Callable[[Costs], bool] = lambda costs: True,
) -> Costs:
    """Time the site's variants, "dense" among them, on each row: by GPU time, or by wall time on a
    CPU.

    Args:
        site: the first array of floats among its operands differs from call to call.
        rows: of the site.
        calls: in a chain.
        samples: timed rounds.
        on_step: called with a variant's name after each of its turns.
        on_row: called after each row with what was measured until then; no further row is begun
            where it returns False.

    Warns:
        RuntimeWarning: for each variant that failed or gave a wrong result; it costs None.
    """
    bench = Bench(site, rows[0], calls=calls, samples=samples)
    names, found, densities = tuple(site.branches), [], []
    for row in rows:
        density, seconds = bench.measure(row, names, on_step)
        found.append(tuple(seconds[name] for name in names))
        densities.append(density)
        if not on_row(Costs(names, tuple(densities), tuple(found))):
            break
    return Costs(names, tuple(densities), tuple(found))


class Bench:
    """The variants of one site, each compiled when it is first measured.

    Args:
        site: whose variants.
        row: any of the rows that are to be measured.
        calls, samples: as in `measure_site`.
    """

    def __init__(self, site: Site, row: Row, *, calls: int, samples: int):
        made = row.make()
        leaves, self._tree = jax.tree.flatten(made.operands)
        self._site, self._calls, self._samples = site, calls, samples
        self._place = next(
            i for i, leaf in enumerate(leaves) if jnp.issubdtype(leaf.dtype, jnp.floating)
        )
        x, self._gpu = leaves[self._place], site.problem.platform == "cuda"
        least = 2 if self._gpu else 1  # GPU time is a difference of two queues
        sets = min(max(math.ceil(ROTATE_BYTES / max(x.nbytes * calls, 1)), least), MAX_SETS)
        dense = site.branches.get("dense", next(iter(site.branches.values())))

        def want(x: jax.Array, _: Any, operands: Any) -> Any:
            return self._run(dense, x, operands)

        draw, rest = self._split(made.operands, fixed=made.fixed)
        self._pool = Pool(draw, want, rest, [None] * calls, sets=sets)
        self._sides: dict[str, ChainSide] = {}
        self._failures: dict[str, str] = {}

    def measure(
        self, row: Row, names: Sequence[str], on_step: Callable[[str], None]
    ) -> tuple[float, Mapping[str, float | None]]:
        """The density of a row, and the seconds a call of some variants on it; None where one
        failed or was wrong.
        """
        made, op = row.make(), self._site.problem.op
        draw, rest = self._split(made.operands, fixed=made.fixed)
        self._pool.load(rest, [None] * self._calls, draw if made.fixed else None)
        self._compile(names)
        sides = [self._sides[n] for n in names if n in self._sides]
        took = interleave(sides, samples=self._samples, device=self._gpu, on_step=on_step)
        bound = tolerance(self._site.problem.dtype, self._site.problem.platform)
        found: dict[str, float | None] = {}
        for name in names:
            why = self._failures.get(name) or took[name].failure
            if not why and took[name].error > bound:
                why = f"wrong by {took[name].error:.2g}; {bound:g} is allowed"
            if why:
                warnings.warn(f"{op}, variant {name}: {why}", RuntimeWarning, stacklevel=3)
            found[name] = None if why else _seconds(took[name])
        return made.density, found

    def _compile(self, names: Sequence[str]) -> None:
        for name in names:
            if name in self._sides or name in self._failures:
                continue
            branch = self._site.branches[name]

            def call(i: int, x: jax.Array, operands: Any, run: Any = branch) -> Any:
                return self._run(run, x, operands)

            try:
                self._sides[name] = ChainSide(name, self._pool, call)
            except Exception as error:  # one variant's failure is a result; the others are timed
                self._failures[name] = f"{type(error).__name__}: {error}"

    def _run(self, run: Callable[..., Any], x: jax.Array, operands: Any) -> Any:
        leaves = [*operands[: self._place], x, *operands[self._place :]]
        return _compared(self._site.problem.op, run(*jax.tree.unflatten(self._tree, leaves)))

    def _split(self, operands: tuple[Any, ...], *, fixed: bool) -> tuple[Draw, list[Any]]:
        """What draws the input that differs from call to call, and the operands' other leaves."""
        leaves = jax.tree.leaves(operands)
        first = leaves.pop(self._place)

        def draw(seed: int) -> jax.Array:
            if fixed:
                return jnp.array(first)  # a copy: a chain takes its inputs' buffers
            noise = np.random.default_rng(seed).standard_normal(first.shape, np.float32)
            return jnp.asarray(noise).astype(first.dtype)

        return draw, leaves


def _compared(op: str, out: Any) -> Any:
    """What of a result is the same for all variants."""
    if op.startswith("bounded"):
        return out.materialize()  # values are undefined where the recorder stands for them
    if op == "sparse_attention" and len(out) == 2:
        return out[0]
    return out


def _seconds(took: Samples) -> float:
    """GPU time where it was measured; noise may make that of a few calls 0 or less."""
    return took.device_median if took.device_median > 0 else took.wall_median
