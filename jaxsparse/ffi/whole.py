"""`kept_whole`: an operand some of whose axes no mesh may split, for ops that XLA would gather, or
compute wrongly, silently.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
from jax.custom_batching import custom_vmap

from jaxsparse.core.differentiable import differentiable
from jaxsparse.ffi.call import lift
from jaxsparse.ffi.mesh import is_explicit, mesh_of
from jaxsparse.ffi.partition import partitioned
from jaxsparse.ffi.rule import Array, Rule, assign, parse, refusal, spec_of


def kept_whole(op: str, name: str, value: jax.Array, splits: Sequence[int], why: str) -> jax.Array:
    """The operand `name` of `op` with every axis whole in each shard, but for the axes `splits`.

    On Auto axes what is gathered for that is told, with a warning. Without a mesh it is `value`.

    Raises:
        ValueError: for another axis that is sharded over Explicit axes, naming the operand.
    """
    mesh = mesh_of([value])
    factors = tuple(f"a{i}" for i in range(value.ndim))
    cut = tuple(factors[i] for i in splits)
    if mesh is None or 0 in value.shape or len(cut) == value.ndim:
        return value
    text = " ".join(factors)
    rule = Rule(op, (text,), (text,), cut, (name,), why={f: why for f in factors if f not in cut})
    if is_explicit(value):
        spec = spec_of(jax.typeof(value).sharding.spec, value.ndim)
        whole = Array(name, parse(text), tuple(value.shape), spec)
        cuts = assign(rule, [whole], [], dict(mesh.shape))[1]
        if cuts:
            raise ValueError(refusal(rule, cuts[0]))
    if not mesh.auto_axes and mesh.explicit_axes:
        return value
    return _kept(_Rule(rule), *lift(value))


def first_axis_alone(op: str, name: str, value: jax.Array, trailing: int) -> jax.Array:
    """The operand of an op that joins all leading axes, of which a mesh splits the first one. The
    `trailing` axes are as the op has them.
    """
    leading = value.ndim - trailing
    if leading < 2:
        return value
    why = f"of the leading axes of {name} a mesh splits the first alone: split that, or join them"
    return kept_whole(op, name, value, (0, *range(leading, value.ndim)), why)


@dataclasses.dataclass(frozen=True, eq=False)
class _Rule:
    """A rule as a static argument."""

    rule: Rule


@differentiable()
def _kept(kept: _Rule, value: jax.Array) -> jax.Array:
    return _run(kept.rule, value)


def _run(rule: Rule, value: jax.Array) -> jax.Array:
    @custom_vmap
    def run(value: jax.Array) -> jax.Array:
        return partitioned(rule, lambda v: v, lambda _, v: v)(value)

    @run.def_vmap
    def rule_of_vmap(axis_size: int, in_batched: Sequence[bool], value: jax.Array):
        axis = f"v{value.ndim}"
        text = f"{axis} {rule.results[0]}"
        more = dataclasses.replace(
            rule, operands=(text,), results=(text,), splits=(axis, *rule.splits), from_end=True
        )
        return _run(more, value), True

    return run(value)


def _forward(kept: _Rule, value: jax.Array):
    return _kept(kept, value), None


def _tangent(kept: _Rule, saved: None, tangents: Any):
    return _kept(kept, tangents[0])


def _backward(kept: _Rule, saved: None, ct: jax.Array):
    return (_kept(kept, ct),)


_kept.defrules(_forward, _tangent, _backward)
