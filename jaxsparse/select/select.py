"""One interface, two ways of choosing a variant: at trace time, or by `lax.switch` on the index's
count.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from jaxsparse.select.config import settings
from jaxsparse.select.sites import note
from jaxsparse.select.table import Entry, Rung, TuningTable, table_for


@dataclasses.dataclass(frozen=True)
class Problem:
    """What a tuning table knows a call by.

    `n_tiles` is the number of tiles of a full mask: count / n_tiles is the density that the ladder
    speaks of.
    """

    op: str
    platform: str
    dtype: str
    features: dict[str, float]
    n_tiles: int


def device_kind(platform: str) -> str:
    """The kind of this machine's first device of `platform` ("cpu" for every CPU), or "" where
    there is none.
    """
    if platform == "cpu":
        return "cpu"
    try:
        return jax.devices(platform)[0].device_kind
    except RuntimeError:
        return ""


def table_in_force(platform: str) -> TuningTable:
    """The table of `js.config(tuning=)`, else the one shipped for this machine's device."""
    return settings().tuning or table_for(device_kind(platform), platform)


def home_platform() -> str:
    """ "cpu" or "cuda": where JAX runs by default here."""
    return "cpu" if jax.default_backend() == "cpu" else "cuda"


def default_tile() -> tuple[int, int]:
    """The data tile that the table in force takes when the user names none."""
    return table_in_force(home_platform()).tile


def entry_for(problem: Problem) -> Entry | None:
    """The nearest measured problem in the table in force."""
    return table_in_force(problem.platform).nearest(problem.op, problem.dtype, problem.features)


@dataclasses.dataclass(frozen=True)
class Choice:
    """What was chosen: the rungs of the ladder (one, when static), how, and why."""

    how: str
    rungs: tuple[Rung, ...]
    why: str


def choose(problem: Problem, names: Collection[str]) -> Choice:
    """Choose among the variants `names` that take this problem, in order of preference where
    nothing was measured.

    Raises:
        ValueError: when `js.config(variant=)` names another.
    """
    now = settings()
    # One trace serves every platform: a variant is demanded of this machine's, not of the others.
    if now.variant is not None and (now.variant in names or problem.platform == home_platform()):
        if now.variant not in names:
            raise ValueError(
                f"{problem.op}: js.config(variant={now.variant!r}) does not take this problem on "
                f"{problem.platform}; these do: {', '.join(names)}"
            )
        return Choice("static", (Rung(1.0, now.variant),), "js.config(variant=)")
    entry = entry_for(problem)
    first = next(iter(names))
    if now.selection == "switch":
        rungs = tuple(r for r in (entry.ladder if entry else ()) if r.variant in names)
        rungs = rungs or (Rung(1.0, first),)
        last = Rung(1.0, rungs[-1].variant)
        return Choice("switch", (*rungs[:-1], last), "lax.switch on the density of the index")
    if entry is not None and entry.static in names:
        return Choice("static", (Rung(1.0, entry.static),), "tuning table")
    return Choice("static", (Rung(1.0, first),), "first variant that takes this problem")


def select(
    problem: Problem, branches: Mapping[str, Callable[..., Any]], count: jax.Array
) -> Callable[..., Any]:
    """A function of the op's arrays that runs one of `branches` (name -> function with equal result
    types).

    `count` is the number of active tiles, on the device; only `selection="switch"` reads it.
    """
    rungs = choose(problem, branches).rungs
    if len(rungs) == 1:
        return _noted(problem, branches, branches[rungs[0].variant])
    edges = jnp.asarray([r.up_to * problem.n_tiles for r in rungs[:-1]], jnp.float32)
    branch = jnp.sum(count.astype(jnp.float32) > edges, dtype=jnp.int32)
    functions = [branches[r.variant] for r in rungs]
    return _noted(problem, branches, lambda *arrays: jax.lax.switch(branch, functions, *arrays))


def _noted(problem: Problem, branches: Mapping[str, Any], run: Callable[..., Any]) -> Any:
    def noted(*arrays: Any) -> Any:
        note(problem, branches, arrays)
        return run(*arrays)

    return noted
