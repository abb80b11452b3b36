"""One interface, three ways of choosing a variant: at trace time, in the kernel, or by `lax.switch`
on the index's count.
"""

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxsparse.select.config import settings
from jaxsparse.select.costs import Candidate, cheapest, mean_cost
from jaxsparse.select.sites import note
from jaxsparse.select.table import DENSE, Entry, Rung, TuningTable, distance, table_for
from jaxsparse.select.variants import variants


@dataclasses.dataclass(frozen=True)
class Problem:
    """What a tuning table knows a call by.

    `n_tiles` is the number of tiles of a full mask: count / n_tiles is the density that the ladder
    speaks of. `own`: an implementation was demanded by name, so a table does not put XLA's dense
    operation in its place.
    """

    op: str
    platform: str
    dtype: str
    features: dict[str, float]
    n_tiles: int
    own: bool = False


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
    """What was chosen: the rungs of the ladder (one, when static) or the candidates (when the
    device chooses), how, and why.
    """

    how: str
    rungs: tuple[Rung, ...]
    why: str
    candidates: tuple[Candidate, ...] = ()

    def variant(self, counts: Sequence[int], n_tiles: int) -> str:
        """The variant that runs where list i has `counts[i]` tiles; `n_tiles` are all of list 0."""
        if self.candidates:
            return cheapest(self.candidates, *counts).name
        density = counts[0] / n_tiles if n_tiles else 0.0
        fits = (r.variant for r in self.rungs if density <= r.up_to)
        return next(fits, self.rungs[-1].variant)


@dataclasses.dataclass(frozen=True)
class OnDevice:
    """What an op offers where the device chooses.

    Attributes:
        candidates: of one call; empty where there are none.
        tiles: of a full mask, list by list.
        costs: what every measured variant would cost alone.
        run: candidates -> function of the op's arrays; None where only the choice is asked for.
        why_not: why there are no candidates.
    """

    candidates: tuple[Candidate, ...]
    tiles: tuple[int, ...]
    costs: Mapping[str, Candidate]
    run: Callable[[tuple[Candidate, ...]], Callable[..., Any]] | None = None
    why_not: str = ""


#: Microseconds that choosing on the device costs over a direct call.
CHOOSING = 0.5

#: A squared log distance past which a table's entry says nothing of dense: a factor of four.
FAR = math.log(4) ** 2


def choose(problem: Problem, names: Collection[str], device: OnDevice | None = None) -> Choice:
    """Choose among the variants `names` that take this problem, in order of preference where
    nothing was measured; or leave it to the device, where `device` offers that.

    Raises:
        ValueError: when `js.config(variant=)` names another.
    """
    now = settings()
    # One trace serves every platform: a variant is demanded of this machine's, not of the others.
    asked = now.demanded(problem.op)
    if asked is not None and (asked in names or problem.platform == home_platform()):
        if asked not in names:
            known = asked in (v.name for v in variants(problem.op))
            fault = "does not take this problem" if known else "is no variant in this build"
            raise ValueError(
                f"{problem.op}: js.config(variant={asked!r}) {fault}; "
                f"on {problem.platform} these take it: {', '.join(names)}"
            )
        return Choice("static", (Rung(1.0, asked),), "js.config(variant=)")
    entry = entry_for(problem)
    first = next(iter(names))
    if now.selection == "switch":
        rungs = tuple(r for r in (entry.ladder if entry else ()) if r.variant in names)
        why = _why_switch(problem, entry, len(rungs))
        rungs = rungs or (Rung(1.0, first),)
        last = Rung(1.0, rungs[-1].variant)
        return Choice("switch", (*rungs[:-1], last), why)
    why = "first variant that takes this problem"
    if entry is not None and entry.static in names and not _unasked(problem, entry):
        first, why = entry.static, "tuning table"
    if device is not None and now.selection != "static":
        against = _against_device(problem, first, device, demanded=now.selection == "device")
        if not against:
            how = "chosen by the kernel from the count"
            return Choice("device", (), how, device.candidates)
        why = f"{why}; not on the device: {against}"
    elif now.selection == "device":
        why = f"{why}; not on the device: {problem.op} offers no such choice"
    return Choice("static", (Rung(1.0, first),), why)


def _unasked(problem: Problem, entry: Entry) -> bool:
    """Whether the table's choice is the dense operation for a problem it does not speak of: one
    that is far from what was measured, or whose implementation was demanded.
    """
    far = distance(entry.features, problem.features) > FAR
    return entry.static == DENSE and (far or problem.own)


def _why_switch(problem: Problem, entry: Entry | None, rungs: int) -> str:
    """What `explain` says of a ladder of `rungs`."""
    if rungs > 1:
        return "lax.switch on the density of the index"
    if rungs == 1:
        return "tuning table: one variant at every density"
    if entry is not None:
        return "no variant of the tuning table takes this problem: first variant that does"
    device = device_kind(problem.platform) or problem.platform
    return f"nothing measured for {device}: first variant; js.tune makes a table"


def _against_device(problem: Problem, static: str, device: OnDevice, *, demanded: bool) -> str:
    """What speaks against leaving the choice to the device, or ""."""
    if not device.candidates:
        return device.why_not
    if demanded:
        return ""
    if problem.platform != "cuda":
        return "js.config(selection=) does not ask for it"
    if static in device.costs:
        alone = mean_cost((device.costs[static],), *device.tiles)
        together = mean_cost(device.candidates, *device.tiles) + CHOOSING
        if together >= alone:
            return f"{static} alone takes {alone:.1f} us on average, they {together:.1f}"
    return ""


def select(
    problem: Problem,
    branches: Mapping[str, Callable[..., Any]],
    count: jax.Array,
    device: OnDevice | None = None,
) -> Callable[..., Any]:
    """A function of the op's arrays that runs one of `branches` (name -> function with equal result
    types), or what `device` offers.

    `count` is the number of active tiles, on the device; only `selection="switch"` reads it here.
    """
    choice = choose(problem, branches, device)
    if choice.candidates and device is not None and device.run is not None:
        return _noted(problem, branches, device.run(choice.candidates))
    rungs = choice.rungs
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
