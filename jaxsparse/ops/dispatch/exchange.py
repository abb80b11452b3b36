"""The two ways of exchanging rows: runs of any length at once (`jax.lax.ragged_all_to_all`, which
XLA has for GPUs), and `all_to_all` of buffers with room for the capacity, on other platforms. Each
direction is the transpose of the other.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from jaxsparse.core.batching import kept
from jaxsparse.core.differentiable import differentiable
from jaxsparse.ops.dispatch.plan import Axis, Plan, plan_of

#: Platforms on which XLA has `ragged_all_to_all`.
RAGGED_ON = ("cuda",)


@differentiable()
def there(axis: Axis, rows: jax.Array, table: jax.Array, me: jax.Array) -> jax.Array:
    """Sorted rows [assignments, d] of this device -> [axis.rows, d] of its experts, sorted by
    expert; zeros after the last.
    """
    ways = functools.partial(_ragged_there, axis), functools.partial(_padded_there, axis)
    return _by_platform(*ways, rows, plan_of(axis, table, me))


@differentiable()
def back(axis: Axis, rows: jax.Array, table: jax.Array, me: jax.Array) -> jax.Array:
    """Rows [axis.rows, d] of this device's experts -> [assignments, d] of its own tokens, sorted;
    zeros where a row was not sent. Rows after the last are not read.
    """
    ways = functools.partial(_ragged_back, axis), functools.partial(_padded_back, axis)
    return _by_platform(*ways, rows, plan_of(axis, table, me))


def _forward(run: Any, axis: Axis, rows: jax.Array, table: jax.Array, me: jax.Array):
    return run(axis, rows, table, me), (table, me)


def _tangent(run: Any, axis: Axis, saved: Any, tangents: Any):
    return None if tangents[0] is None else run(axis, tangents[0], *saved)


def _transpose(run: Any, axis: Axis, saved: Any, ct: jax.Array):
    return run(axis, ct, *saved), None, None


for _way, _other in ((there, back), (back, there)):
    _way.defrules(
        functools.partial(_forward, _way),
        functools.partial(_tangent, _way),
        functools.partial(_transpose, _other),
    )


def _by_platform(ragged: Any, padded: Any, rows: jax.Array, plan: Plan) -> jax.Array:
    branches: dict[str, Any] = dict.fromkeys(RAGGED_ON, ragged)
    return jax.lax.platform_dependent(rows, plan, default=padded, **branches)


def _ragged_there(axis: Axis, rows: jax.Array, plan: Plan) -> jax.Array:
    room = _zeros(rows, axis.rows)
    runs = plan.sent_at, plan.sent, plan.sent_to, plan.received
    return _ragged(axis, rows, room, *runs)


def _ragged_back(axis: Axis, rows: jax.Array, plan: Plan) -> jax.Array:
    room = _zeros(rows, axis.assignments)
    runs = plan.received_at, plan.received, plan.received_from, plan.sent
    return _ragged(axis, rows, room, *runs)


def _ragged(axis: Axis, rows: jax.Array, room: jax.Array, *runs: jax.Array) -> jax.Array:
    if not (rows.size and room.size and runs[0].size):
        return room
    return _exchange(axis)(rows, room, *(run.reshape(-1) for run in runs))


@kept
def _exchange(axis: Axis) -> Any:
    """`ragged_all_to_all` of one axis. JAX's own batching takes offsets only if all of them are
    batched.
    """

    @custom_vmap
    def exchange(rows: jax.Array, room: jax.Array, *runs: jax.Array) -> jax.Array:
        return jax.lax.ragged_all_to_all(rows, room, *runs, axis_name=axis.name)

    @exchange.def_vmap
    def _(size: int, batched: Any, *given: jax.Array) -> tuple[jax.Array, bool]:
        """One exchange: each run of the batch in turn, of rows after rows."""
        rows, room, *runs = (
            value if is_batched else jnp.broadcast_to(value, (size, *value.shape))
            for value, is_batched in zip(given, batched, strict=True)
        )
        if not size:
            return room, True
        entry = jnp.arange(size, dtype=jnp.int32)[:, None]
        sent_at, sent, sent_to, received = runs
        runs = [sent_at + entry * rows.shape[1], sent, sent_to + entry * room.shape[1], received]
        flat = [value.reshape(-1, *value.shape[2:]) for value in (rows, room)]
        made = exchange(*flat, *(run.T.reshape(-1) for run in runs))
        return made.reshape(room.shape), True

    return exchange


def _padded_there(axis: Axis, rows: jax.Array, plan: Plan) -> jax.Array:
    buffers = _taken(rows, _sorted_of_slots(axis, plan))
    return _taken(_swapped(axis, buffers), _slots_of_rows(axis, plan))


def _padded_back(axis: Axis, rows: jax.Array, plan: Plan) -> jax.Array:
    buffers = _taken(rows, _inverse(_slots_of_rows(axis, plan), axis.rows))
    slots = _inverse(_sorted_of_slots(axis, plan), axis.assignments)
    return _taken(_swapped(axis, buffers), slots)


def _swapped(axis: Axis, buffers: jax.Array) -> jax.Array:
    """Buffer i of device j is buffer j of device i."""
    apart = buffers.reshape(axis.devices, axis.capacity, *buffers.shape[1:])
    return jax.lax.all_to_all(apart, axis.name, 0, 0).reshape(buffers.shape)


def _sorted_of_slots(axis: Axis, plan: Plan) -> jax.Array:
    """int32[axis.rows]: the sorted row in each slot of the buffers to send; -1 in free ones."""
    at = jnp.arange(axis.capacity, dtype=jnp.int32)
    used = at < plan.sent.sum(1, dtype=jnp.int32)[:, None]
    rows = plan.sent_at[:, :1] + at if plan.sent_at.shape[1] else jnp.broadcast_to(at, used.shape)
    return jnp.where(used, rows, -1).reshape(-1)


def _slots_of_rows(axis: Axis, plan: Plan) -> jax.Array:
    """int32[axis.rows]: the slot, of the buffers received, with each row sorted by expert; -1 after
    the last row.
    """
    runs = plan.received.T.reshape(-1)  # by expert, then by device
    if not runs.size:
        return jnp.full(axis.rows, -1, jnp.int32)
    ends = jnp.cumsum(runs, dtype=jnp.int32)
    row = jnp.arange(axis.rows, dtype=jnp.int32)
    run = jnp.searchsorted(ends, row, side="right").astype(jnp.int32)
    known = jnp.minimum(run, runs.size - 1)
    expert, device = known // axis.devices, known % axis.devices
    first = jnp.cumsum(plan.received, 1, dtype=jnp.int32) - plan.received
    slot = device * axis.capacity + first[device, expert] + row - (ends - runs)[known]
    return jnp.where(run < runs.size, slot, -1)


def _inverse(places: jax.Array, count: int) -> jax.Array:
    """int32[count]: the entry of `places`, distinct or -1, that holds each number; -1 without."""
    at = jnp.where(places < 0, count, places)
    entries = jnp.arange(places.size, dtype=jnp.int32)
    free = jnp.full_like(places, -1, shape=(count,))
    return free.at[at].set(entries, mode="drop")


def _taken(rows: jax.Array, places: jax.Array) -> jax.Array:
    """The rows at `places`, zeros where that is negative."""
    if not rows.size:
        return _zeros(rows, places.size)
    at = jnp.where(places < 0, rows.shape[0], places)
    return rows.at[at].get(mode="fill", fill_value=0)


def _zeros(like: jax.Array, count: int) -> jax.Array:
    """Zeros of `count` rows that vary over the mesh as `like` does."""
    return jnp.zeros_like(like, shape=(count, *like.shape[1:]))
