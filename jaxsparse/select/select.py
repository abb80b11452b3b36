"""One interface, three ways of choosing a variant: at trace time, in the kernel, or by `lax.switch`
on the index's count. A choice is made once for a problem and a setting, and kept.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp

from jaxsparse.core.device import device_kind, gpu_facts, home_platform, is_hopper
from jaxsparse.select.choice import Against, Choice, Known, Offer, Reason, chooser, remember
from jaxsparse.select.config import settings
from jaxsparse.select.costs import cheapest, line, mean_cost, mean_costs
from jaxsparse.select.policy import Policy, choose_by, picked
from jaxsparse.select.problem import Problem
from jaxsparse.select.sites import note
from jaxsparse.select.table import (
    DENSE,
    Entry,
    Measured,
    Rung,
    Same,
    TuningTable,
    distance,
    table_for,
)
from jaxsparse.select.variants import Op, variants


def table_in_force(platform: str) -> TuningTable:
    """The table of `js.config(tuning=)`, else the one shipped for this machine's device."""
    return settings().tuning or table_for(device_kind(platform), platform)


def default_tile() -> tuple[int, int]:
    """The data tile that the table in force takes when the user names none."""
    return table_in_force(home_platform()).tile


def entry_for(problem: Problem, reach: float) -> Entry | None:
    """The nearest measured problem in the table in force, no farther than `reach`."""
    found = table_in_force(problem.platform).nearest(problem.op, problem.dtype, problem.features)
    if found is None or reach == math.inf:
        return found
    near = distance(found.features, problem.features) <= reach**2
    return found if near and found.dtype == problem.dtype else None


def with_lines(problem: Problem, offer: Offer) -> Offer:
    """The offer of an op that knows no costs with those that the table in force has of this very
    shape: `start` a call and `step` an active tile.
    """
    if offer.costs:
        return offer
    rates = table_in_force(problem.platform).rates_of(problem.op, problem.dtype, problem.shape)
    found = {
        n: line(rates[n], 0.0, 1.0, number=-1)
        for n in offer.names
        if n in rates and rates[n].shape == problem.shape
    }
    return dataclasses.replace(offer, costs=found, tiles=(max(problem.n_tiles, 1),))


#: A squared log distance past which a table's entry does not cover dense: a factor of four.
FAR = math.log(4) ** 2


class _Force(NamedTuple):
    """What a choice depends on besides its problem: settings, and facts of this machine."""

    selection: str | None
    variant: str | None
    variant_of: str | None
    policy: Policy | None
    table: Same
    home: str
    gpus: tuple[Any, ...]


def _in_force(platform: str) -> _Force:
    now, table, home = settings(), Same(table_in_force(platform)), home_platform()
    asked = now.selection, now.variant, now.variant_of, now.policy
    return _Force(*asked, table, home, gpu_facts())


def choose(op: str, problem: Known) -> Choice:
    """The choice for a problem of `op` under the settings in force: worked out once, then kept.

    Raises:
        ValueError: when `js.config(variant=)` names another variant than those that take it.
    """
    return _chosen(op, problem, _in_force(problem.known.platform))


def _key(op: str, problem: Known, force: _Force) -> Hashable:
    return op, getattr(problem, "key", problem), force


@remember(_key)
def _chosen(op: str, problem: Known, force: _Force) -> Choice:
    """`force` is what is in force where this is called; it is here as a key."""
    found = chooser(op)
    offer = with_lines(problem.known, found.candidates(problem))
    against = functools.partial(found.against, problem)
    how = {"by_name": found.by_name, "by_density": found.by_density}
    return decide(problem.known, offer, against, **how)


def decide(
    problem: Problem,
    offer: Offer,
    against: Callable[[], Mapping[str, str]] = dict,
    *,
    by_name: bool = True,
    by_density: bool = False,
) -> Choice:
    """Choose among what is offered, or leave it to the device where that is offered and pays.

    Args:
        problem: what the tables know it by.
        offer: what could run it.
        against: asked for what is said of a variant that is demanded and does not take it.
        by_name: whether the name of a variant alone demands it.
        by_density: whether a policy may pick by the density.

    Raises:
        ValueError: when `js.config(variant=)` names another.
        TypeError, ValueError: for what a policy returns that is not among the options.
    """
    now, platform = settings(), problem.platform
    facts: dict[str, Any] = {
        "names": offer.names,
        "op": problem.op,
        "dtype": problem.dtype,
        "device": device_kind(platform) or platform,
    }
    asked = now.demanded(problem.called, problem.op, by_name=by_name)
    # One trace serves every platform: a variant is demanded of this machine's, not of the others.
    if asked is not None and (asked in offer.names or platform == home_platform()):
        if asked not in offer.names:
            raise ValueError(_refusal(problem, asked, offer.names, against().get(asked)))
        return Choice(
            "static", (Rung(1.0, asked),), Reason.DEMANDED, **facts, **_times(offer, asked)
        )
    default = _default(problem, offer, facts)
    if now.policy is None:
        return default
    home = platform == home_platform()
    return choose_by(now.policy, problem, offer, default, counts=by_density, home=home)


def _default(problem: Problem, offer: Offer, facts: dict[str, Any]) -> Choice:
    """The choice without a variant that is demanded, and without a policy."""
    now = settings()
    # What was measured for this very plan goes before what was measured for its shape.
    entry = None if offer.reason is Reason.PLAN else entry_for(problem, offer.reach)
    if now.selection == "switch":
        rungs = tuple(r for r in (entry.ladder if entry else ()) if r.variant in offer.names)
        rungs = rungs or offer.ladder
        reason = _why_switch(offer, entry, len(rungs))
        rungs = rungs or (Rung(1.0, offer.names[0]),)
        return Choice("switch", (*rungs[:-1], Rung(1.0, rungs[-1].variant)), reason, **facts)
    if offer.ladder and now.selection != "static":
        rungs = tuple(r for r in (entry.ladder if entry else ()) if r.variant in offer.names)
        return Choice("switch", rungs or offer.ladder, Reason.DENSITY, **facts)
    first, reason = offer.names[0], offer.reason
    if entry is not None and entry.static in offer.names and not _unasked(problem, entry):
        first, reason = entry.static, Reason.TABLE
    measured = entry is not None and distance(entry.features, problem.features) == 0
    if now.selection is None and not measured and _may_lose(problem, offer):
        return Choice("static", (Rung(1.0, DENSE),), Reason.SAFER, **facts, **_times(offer, DENSE))
    times, speaks = _times(offer, first), None
    if now.selection == "device" and not offer.by_device:
        speaks = Against.NOT_OFFERED
    elif now.selection != "static" and offer.by_device:
        together = _together(offer, problem.platform)
        speaks = _against_device(problem, offer, times["us"], together["us"])
        if speaks is None:
            chosen = offer.together
            return Choice("device", (), Reason.COUNT, chosen, **facts, **together)
        if speaks is Against.ALONE:
            times |= {"runner_up": "device", "runner_up_us": together["us"]}
    return Choice("static", (Rung(1.0, first),), reason, against_device=speaks, **facts, **times)


def _refusal(problem: Problem, asked: str, names: tuple[str, ...], why: str | None) -> str:
    """What is said of a variant that is demanded and does not take the problem."""
    known = why is not None or asked in (v.name for v in variants(cast(Op, problem.op)))
    fault = "does not take this problem" if known else "is not one of its variants in this build"
    fault = fault if why is None else f"{fault} ({why})"
    return (
        f"{problem.called}: js.config(variant={asked!r}) {fault}; "
        f"on {problem.platform} these take it: {', '.join(names)}"
    )


def _unasked(problem: Problem, entry: Entry) -> bool:
    """Whether the table's choice is the dense operation for a problem it does not cover: one
    that is far from what was measured, or whose implementation was demanded.
    """
    far = distance(entry.features, problem.features) > FAR
    return entry.static == DENSE and (far or problem.own)


def _may_lose(problem: Problem, offer: Offer) -> bool:
    """Whether a full mask may lose more by the choice on the device than typical masks gain by it
    on the mean, both as ratios to the dense operation: it takes less than the geometric mean of
    what the others take of a full mask, and on the mean. Where all times are estimates, far less.
    """
    dense = offer.costs.get(DENSE)
    if problem.platform != "cuda" or problem.own or not offer.together or dense is None:
        return False
    if DENSE not in offer.names:
        return False
    here = Measured("any", "cuda")
    more = here("choosing") + here("indexing")
    full = cheapest(offer.together, *offer.tiles).at(*offer.tiles) + more
    mean = mean_cost(offer.together, *offer.tiles) + more
    unsure = 1.0 if is_hopper() else here("unsure")
    return unsure * dense.at(*offer.tiles) < math.sqrt(full * mean)


def _why_switch(offer: Offer, entry: Entry | None, rungs: int) -> Reason:
    """The reason of a ladder with `rungs`."""
    if rungs:
        return Reason.DENSITY if rungs > 1 else Reason.ONE_RUNG
    if offer.reason is not Reason.FIRST:
        return offer.reason
    return Reason.UNMEASURED if entry is None else Reason.NOT_IN_TABLE


def _times(offer: Offer, name: str) -> dict[str, Any]:
    """The expected time of one variant alone, and the next one."""
    alone = mean_costs(offer.costs, offer.tiles)
    us = alone.pop(name, None)
    other = min((n for n in alone if n in offer.names), key=lambda n: alone[n], default=None)
    return {"us": us, "runner_up": other, "runner_up_us": None if other is None else alone[other]}


def _together(offer: Offer, platform: str) -> dict[str, Any]:
    """The expected time of the call whose kernel chooses, and the best variant alone."""
    if not offer.together:
        return {"us": None}
    # What choosing on the device costs over a direct call.
    us = mean_cost(offer.together, *offer.tiles) + Measured("any", platform)("choosing")
    alone = _times(offer, "")
    return {**alone, "us": us}


def _against_device(
    problem: Problem, offer: Offer, alone: float | None, together: float | None
) -> Against | None:
    """What speaks against leaving the choice to the device, which takes `together` microseconds,
    where the static choice takes `alone`.
    """
    if together is None:
        return offer.against
    if settings().selection == "device":
        return None
    if problem.platform != "cuda":
        return Against.NOT_ASKED
    return Against.ALONE if alone is not None and together >= alone else None


def picker(choice: Choice, problem: Problem) -> Callable[[jax.Array], jax.Array] | None:
    """A policy's function as one of the count, int32[] to int32[]; None where it has none."""
    if choice.by is None:
        return None
    several = len(choice.candidates or choice.rungs)
    return functools.partial(picked, choice.by, several, tiles=problem.n_tiles)


def run(
    problem: Problem,
    choice: Choice,
    branches: Mapping[str, Callable[..., Any]],
    count: jax.Array,
    together: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """A function of the op's arrays that runs what was chosen.

    Args:
        problem: for the tuner, which watches.
        choice: of this problem.
        branches: name -> function, with equal result types, of every name in the choice.
        count: active tiles, on the device; only `selection="switch"` reads it here.
        together: the call whose kernel chooses among the choice's candidates.
    """
    if choice.candidates:
        if together is None:
            raise TypeError(f"{problem.op}: there is no call that chooses on the device")
        return _noted(problem, choice, branches, together, count)
    rungs = choice.rungs
    if len(rungs) == 1:
        return _noted(problem, choice, branches, branches[rungs[0].variant], count)
    if choice.by is None:
        edges = jnp.asarray([r.up_to * problem.n_tiles for r in rungs[:-1]], jnp.float32)
        branch = jnp.sum(count.astype(jnp.float32) > edges, dtype=jnp.int32)
    else:
        branch = picked(choice.by, len(rungs), count, tiles=problem.n_tiles)
    functions = [branches[r.variant] for r in rungs]
    either = functools.partial(jax.lax.switch, branch, functions)
    return _noted(problem, choice, branches, either, count)


def _noted(
    problem: Problem,
    choice: Choice,
    branches: Mapping[str, Any],
    run: Callable[..., Any],
    count: jax.Array,
) -> Any:
    def noted(*arrays: Any) -> Any:
        note(problem, branches, arrays, choice, count)
        return run(*arrays)

    return noted
