"""A user's own choice: `js.config(policy=)`, a function of a problem and the variants that take it.
After SparDA's *RegisterOptPolicy* (section 4).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsparse.select.choice import Choice, Offer, Reason
from jaxsparse.select.costs import Candidate, mean_costs
from jaxsparse.select.problem import Problem
from jaxsparse.select.table import Rung
from jaxsparse.select.variants import Variant, table

#: The most that a function of the density chooses among.
MOST = 8


@dataclasses.dataclass(frozen=True)
class Option:
    """A variant that can run a problem: what a policy (`js.config(policy=)`) chooses from.

    Attributes:
        variant: `js.Variant`: its op, platform, name, and the fields of its row.
        us: the expected time in microseconds, the mean over typical masks; None if not measured.
        default: whether the default is this variant, or chooses among several that include it.
        on_device: whether the custom call that chooses on the device contains it. A function of
            the density that chooses among such options needs no round trip to the host.
    """

    variant: Variant
    us: float | None
    default: bool
    on_device: bool

    @property
    def name(self) -> str:
        """The variant's name."""
        return self.variant.name


Named = str | Option | Variant
#: Several options, and a function of the density, float32[], that gives the place of one, int32[].
ByDensity = tuple[Sequence[Named], Callable[[jax.Array], jax.Array]]
Answer = Named | ByDensity | None
Policy = Callable[[Problem, tuple[Option, ...]], Answer]


def check_policy(policy: Any) -> None:
    """`policy` may be part of the jit key.

    Raises:
        TypeError: when it cannot be called, or not be hashed.
    """
    if not callable(policy):
        raise TypeError(f"policy must be a function, not {type(policy).__name__}")
    try:
        hash(policy)
    except TypeError as error:
        raise TypeError(
            f"policy is a {type(policy).__name__} that cannot be hashed; it is part of the jit key"
        ) from error


def options(problem: Problem, offer: Offer, default: Choice) -> tuple[Option, ...]:
    """What a policy chooses among, in order of preference where nothing was measured."""
    alone = mean_costs(offer.costs, offer.tiles)
    chosen = {r.variant for r in default.rungs} | {c.variant for c in default.candidates}
    rows, together = table(problem.op, problem.platform), {c.variant for c in offer.together}
    found: list[Option] = []
    for name in offer.names:
        variant = rows.get(name) or Variant(problem.op, problem.platform, name, -1, {})
        variant = variant._replace(fields=dict(variant.fields))
        found.append(Option(variant, alone.get(name), name in chosen, name in together))
    return tuple(found)


def choose_by(
    policy: Policy, problem: Problem, offer: Offer, default: Choice, *, counts: bool, home: bool
) -> Choice:
    """The choice that a policy makes, in place of the `default`.

    Args:
        policy: of the user.
        problem: what it is told of.
        offer: what takes the problem.
        default: the choice without a policy; the policy's None.
        counts: whether the op can choose by the density.
        home: whether this is the platform of this machine: another one may lack what is named.

    Raises:
        TypeError, ValueError: for an answer that is not among the options.
    """
    given = options(problem, offer, default)
    shown = dataclasses.replace(problem, features=MappingProxyType(dict(problem.features)))
    answer = policy(shown, given)
    if answer is None:
        return default
    several, function = _read(problem, answer)
    names = tuple(_name(problem, each) for each in several)
    missing = [n for n in names if n not in offer.names]
    if missing and not home:
        return default
    if missing:
        raise ValueError(
            f"{problem.called}: policy returned {missing[0]!r}, which does not take this problem; "
            f"on {problem.platform} these take it: {', '.join(offer.names)}"
        )
    plain = dataclasses.replace(
        default, how="static", rungs=(), candidates=(), against_device=None, us=None
    )
    plain = dataclasses.replace(plain, runner_up=None, runner_up_us=None, reason=Reason.POLICY)
    costs = {option.name: option.us for option in given}
    if function is None:
        return dataclasses.replace(plain, rungs=(Rung(1.0, names[0]),), us=costs[names[0]])
    if not counts:
        raise ValueError(
            f"{problem.called}: policy returned a function of the density; {problem.op} chooses "
            "while it is traced, so return one option"
        )
    _check_function(problem, function)
    plain = dataclasses.replace(plain, reason=Reason.POLICY_BY_DENSITY, by=function)
    together = {c.variant: c for c in reversed(offer.together)}
    if {*names} <= {*together}:
        chosen: tuple[Candidate, ...] = tuple(together[n] for n in names)
        return dataclasses.replace(plain, how="device", candidates=chosen)
    return dataclasses.replace(plain, how="switch", rungs=tuple(Rung(1.0, n) for n in names))


def _read(problem: Problem, answer: Any) -> tuple[Sequence[Any], Any]:
    """The options of an answer, and its function, if it has one."""
    if isinstance(answer, (str, Option, Variant)):
        return [answer], None
    if not isinstance(answer, tuple) or len(answer) != 2 or not callable(answer[1]):
        raise TypeError(
            f"{problem.called}: policy returned {answer!r}; it returns None, one of the options "
            "(or its name), or a pair (options, function of the density)"
        )
    several, function = answer
    if isinstance(several, str) or not isinstance(several, Sequence):
        raise TypeError(f"{problem.called}: policy returned a pair of {several!r}, not of options")
    if not 0 < len(several) <= MOST:
        raise ValueError(
            f"{problem.called}: policy returned {len(several)} options with a function of the "
            f"density; it takes 1 to {MOST}"
        )
    return several, function


def _name(problem: Problem, answer: Any) -> str:
    if isinstance(answer, str):
        return answer
    if isinstance(answer, (Option, Variant)):
        return answer.name
    raise TypeError(
        f"{problem.called}: policy returned a {type(answer).__name__}, not one of the options"
    )


def _check_function(problem: Problem, function: Callable[[jax.Array], jax.Array]) -> None:
    """A function of the density gives an int32[]."""
    found = jax.eval_shape(function, jax.ShapeDtypeStruct((), np.float32))
    if getattr(found, "shape", None) != () or found.dtype != np.int32:
        came = f"{found.dtype}{list(found.shape)}" if hasattr(found, "shape") else repr(found)
        raise TypeError(
            f"{problem.called}: policy's function of the density returned {came}; it returns the "
            "place of an option, int32[]"
        )


def picked(
    by: Callable[[jax.Array], jax.Array], n: int, count: jax.Array, *, tiles: int
) -> jax.Array:
    """The place among `n` options that a function of the density picks, int32[], inside the range;
    a mask without tiles has density 0.
    """
    density = count.astype(jnp.float32) / max(tiles, 1)
    return jnp.clip(by(density), 0, n - 1)
