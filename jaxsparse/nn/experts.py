"""The experts of a mixture on a mesh: each device routes its own tokens.

A device sorts the tokens of its shard by expert, and multiplies them by the weights that it holds:
all of them, a share of the hidden features or of the outputs, or some of the experts. What is
missing is added up over the mesh, once. Where tokens and experts are split over the same axis, and
`expert_axis=` names it, tokens are sent to their experts instead (`js.dispatch`).
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

from jaxsparse.core.batching import kept, loop_over
from jaxsparse.ffi import Implementation, Rule, Shards, partitioned
from jaxsparse.ffi.composed import Composed
from jaxsparse.ffi.platform import NAMES, plan
from jaxsparse.ops import combine, dispatch, grouped_matmul, route
from jaxsparse.ops.grouped_gated.api import grouped_gated
from jaxsparse.select.config import override
from jaxsparse.select.explain import record

_NAMES = ("inputs", "the experts of inputs", "their weights", "gate", "up", "down")
_TOLD = "tokens are sent to the devices of their experts (js.dispatch), and results back"
_TO_DO = (
    "give the layer expert_axis= with that mesh axis, and tokens are sent to the devices of their "
    "experts, or split the experts over another axis"
)


@dataclasses.dataclass(frozen=True)
class Experts:
    """What the experts of a layer do: `activation` of `ACTIVATIONS`; `expert_axis` where given."""

    activation: str
    precision: jax.lax.PrecisionLike
    implementation: Implementation
    expert_axis: str | tuple[str, ...] | None


#: Of a hidden layer; "swiglu" is that of its gate.
ACTIVATIONS = {
    "relu": jax.nn.relu,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
    "swiglu": jax.nn.silu,
}


def experts_on_mesh(
    how: Experts,
    x: jax.Array,
    ids: jax.Array,
    weights: jax.Array,
    gate: jax.Array | None,
    up: jax.Array,
    down: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """x[*batch, d] through the experts ids[*batch, top_k], summed with their weights.

    Returns:
        ([*batch, d], int32[experts]: how many assignments each expert has).

    Raises:
        ValueError: on Explicit axes, for what cannot be split, naming the argument.
    """
    batch = tuple(f"b{i}" for i in range(x.ndim - 1))
    tokens = " ".join(batch)
    given = ids.dtype.name, ids.shape, up.shape[0], x.dtype.name, x.shape[-1], up.shape[2]
    shape = "{}{} to {} experts, {}[{}] to hidden {}".format(*map(_shown, given))
    record("MoE", shape, plan("grouped_matmul", how.implementation, NAMES), None, None)
    shared = {} if how.expert_axis is None else {"g": batch}
    rule = Rule(
        "MoE",
        (f"{tokens} d", f"{tokens} k", f"{tokens} k", "g d h", "g d h", "g h o"),
        (f"{tokens} o",),
        (*batch, "g", "h", "o"),
        _NAMES,
        dtype=x.dtype.name,
        why={
            "d": "an expert reads all features of a token: split the tokens, the experts or "
            "the hidden features",
            "k": "the results of a token's experts are added up",
        },
        shared=shared,
        told={"g": _TOLD},
        clash={"g": _TO_DO},
    )
    found = Composed(rule, functools.partial(_local, how, batch))(x, ids, weights, gate, up, down)
    return found[0], _sizes(batch, up.shape[0])(ids)


def whole_tokens(x: jax.Array) -> jax.Array:
    """x[*batch, d], for a layer that compares all tokens.

    Raises:
        ValueError: for tokens that are split over Explicit axes; on Auto axes it is a warning.
    """
    batch = tuple(f"b{i}" for i in range(x.ndim - 1))
    factors = " ".join((*batch, "d"))
    why = (
        "with routing='expert_choice' each expert chooses among all tokens: use routing='top_k', "
        "or call the layer inside jax.shard_map, where experts choose among a shard's tokens"
    )
    rule = Rule(
        "MoE", (factors,), (factors,), (), _NAMES[:1], why=dict.fromkeys((*batch, "d"), why)
    )
    return Composed(rule, lambda _, x: (x,))(x)[0]


def _shown(value: Any) -> str:
    return str(list(value)) if isinstance(value, tuple) else str(value)


def _local(
    how: Experts,
    batch: tuple[str, ...],
    shards: Shards,
    x: jax.Array,
    ids: jax.Array,
    weights: jax.Array,
    gate: jax.Array | None,
    up: jax.Array,
    down: jax.Array,
) -> tuple[jax.Array, ...]:
    """A shard's part of the sum: of its tokens, its experts and its hidden features."""
    tokens = x.reshape(-1, x.shape[-1])
    ids, weights = (v.reshape(tokens.shape[0], v.shape[-1]) for v in (ids, weights))
    axes = shards.axes.get("g", ())
    split = {a for b in batch for a in shards.axes.get(b, ())}
    exchanged = bool(axes) and {*axes} <= split
    with override(checked=False, explain=None):  # checked and told as one
        if exchanged:
            y = _sent(how, axes, shards, tokens, ids, weights, gate, up, down)
        else:
            wide = shards.count("g", "h") > 1
            y = _kept(how, wide, shards, tokens, ids, weights, gate, up, down)
    return (y.reshape(*x.shape[:-1], y.shape[-1]),)


def _kept(
    how: Experts,
    wide: bool,
    shards: Shards,
    tokens: jax.Array,
    ids: jax.Array,
    weights: jax.Array,
    gate: jax.Array | None,
    up: jax.Array,
    down: jax.Array,
) -> jax.Array:
    """Through the experts that are here, those of other shards count as none; `wide`: in float32,
    because other shards' results are added.
    """
    experts = up.shape[0]
    here = ids - shards.place("g") * experts
    here = jnp.where((here >= 0) & (here < experts), here, -1)
    routing = route(here, experts, implementation=how.implementation)
    hidden = _hidden(how, tokens, routing.gather, routing.group_sizes, gate, up)
    return grouped_matmul(
        hidden,
        down,
        routing.group_sizes,
        scatter=routing.gather,
        row_weights=weights.reshape(-1)[routing.order],
        num_rows=tokens.shape[0],
        preferred_element_type=np.float32 if wide else None,
        precision=how.precision,
        implementation=how.implementation,
    )


def _sent(
    how: Experts,
    axes: tuple[str, ...],
    shards: Shards,
    tokens: jax.Array,
    ids: jax.Array,
    weights: jax.Array,
    gate: jax.Array | None,
    up: jax.Array,
    down: jax.Array,
) -> jax.Array:
    """Through the experts of all shards along the axes, which get the tokens."""
    routing = route(ids, up.shape[0] * shards.count("g"), implementation=how.implementation)
    rows, exchange = dispatch(tokens, routing, axes)
    hidden = _hidden(how, rows, None, exchange.group_sizes, gate, up)
    found = grouped_matmul(
        hidden,
        down,
        exchange.group_sizes,
        precision=how.precision,
        implementation=how.implementation,
    )
    return combine(found, exchange, weights)


def _hidden(
    how: Experts,
    lhs: jax.Array,
    gather: jax.Array | None,
    sizes: jax.Array,
    gate: jax.Array | None,
    up: jax.Array,
) -> jax.Array:
    options: dict[str, Any] = {
        "gather": gather,
        "precision": how.precision,
        "implementation": how.implementation,
    }
    if gate is not None:
        return grouped_gated(lhs, gate, up, sizes, **options)
    return ACTIVATIONS[how.activation](grouped_matmul(lhs, up, sizes, **options))


@kept
def _sizes(batch: tuple[str, ...], experts: int) -> Any:
    """A function of ids int32[*batch, top_k] -> int32[experts], how many there are of each."""
    rule = Rule("MoE", (f"{' '.join(batch)} k",), (".",), batch, _NAMES[1:2])

    def count(ids: jax.Array) -> jax.Array:
        return jnp.sum(ids.reshape(-1, 1) == jnp.arange(experts), axis=0, dtype=jnp.int32)

    @custom_vmap
    def run(ids: jax.Array) -> jax.Array:
        return partitioned(rule, count, lambda _, ids: count(ids))(ids)

    @run.def_vmap
    def rule_of_vmap(axis_size: int, in_batched: Any, ids: jax.Array):
        return loop_over(run, (ids,), in_batched), True

    return run
