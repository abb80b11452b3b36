"""`dispatch` and `combine`: expert parallelism. The experts are split over a mesh axis. Each device
sends its tokens to the devices that hold their experts, multiplies the rows that it received, and
sends the results back.
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int32, Shaped

from jaxsparse.core.checks import as_array, check_float, check_rank
from jaxsparse.core.integers import check_count
from jaxsparse.core.variables import takes_variables
from jaxsparse.ffi import lift
from jaxsparse.ffi.faults import raise_on_host
from jaxsparse.ffi.mesh import AxisName, devices_along
from jaxsparse.ffi.platform import offered_by, offers, plan
from jaxsparse.ops.dispatch.exchange import back, there
from jaxsparse.ops.dispatch.plan import Axis, group_sizes, overflows, plan_of
from jaxsparse.ops.route.api import Routing
from jaxsparse.select.config import settings
from jaxsparse.select.explain import record

for _op in ("dispatch", "combine"):
    offers(_op, "reference")  # XLA's operations, on every platform

#: What a `shard_map` splits.
_SPLIT = "the tokens and experts"


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=("group_sizes", "overflow", "table", "place"),
    meta_fields=("axis", "shape"),
)
@dataclasses.dataclass(frozen=True, eq=False)
class Exchange:
    """Which rows went to which device: `js.dispatch` returns it, and `js.combine` takes it.

    Attributes:
        group_sizes: int32[num_experts / devices]: rows of each expert of this device, for
            `js.grouped_matmul`.
        overflow: bool[], the same on all devices: whether some device has more assignments for
            another than the capacity. The assignments past it were not sent.
        table: int32[devices, num_experts]: assignments of each device's tokens to each expert.
        place: int32[t * top_k]: the position of each assignment among the rows of this device's
            tokens, sorted by expert.
        axis: the mesh axis, its size and the capacity.
        shape: (tokens, top_k).
    """

    group_sizes: Int32[Array, "experts"]
    overflow: Bool[Array, ""]
    table: Int32[Array, "devices num_experts"]
    place: Int32[Array, "A"]
    axis: Axis
    shape: tuple[int, int]

    @property
    def capacity(self) -> int:
        """Rows that one device may send to another."""
        return self.axis.capacity


@takes_variables
def dispatch(
    x: Shaped[ArrayLike, "t d"],
    routing: Routing,
    axis_name: AxisName,
    *,
    capacity: int | None = None,
) -> tuple[Shaped[Array, "rows d"], Exchange]:
    """Send each token to the devices that hold its experts (expert parallelism). Call it inside
    `jax.shard_map`. Device i of D on the axis holds the experts
    [i * num_experts / D, (i + 1) * num_experts / D), in order.

        rows, exchange = js.dispatch(x, js.route(ids, num_experts), "expert")
        h = jax.nn.relu(js.grouped_matmul(rows, up, exchange.group_sizes))
        y = js.combine(js.grouped_matmul(h, down, exchange.group_sizes), exchange, weights)

    On a GPU only the rows that are needed are sent (`jax.lax.ragged_all_to_all`); elsewhere a whole
    buffer of `capacity` rows is sent to each device (`jax.lax.all_to_all`). Differentiable in x, in
    reverse and forward mode.

    Args:
        x: any dtype [t, d], this device's tokens.
        routing: the result of `js.route` for these tokens and all experts. `num_experts` is a
            multiple of the number of devices on the axis. Assignments to an expert that does not
            exist (such as -1) are not sent.
        axis_name: the name of the mesh axis, or a tuple of names.
        capacity: the most rows that one device may send to another. None means t * top_k, which
            suffices for any routing. A smaller capacity saves memory, because the result has room
            for `capacity` rows from every device. Where it does not suffice, the last rows are not
            sent and count as 0 in `combine`, `exchange.overflow` is true, and `js.checked()`
            raises.

    Returns:
        (rows, exchange): [devices * capacity, d] in the dtype of x, the rows that this device
        received, sorted by expert, and zeros after them; and an `Exchange` for `js.combine`.

    Raises:
        TypeError, ValueError: for a wrong rank, shape, type or number, naming the argument; for an
            axis that the `jax.shard_map` around the call does not have.
    """
    check_rank("x", x, 2)
    x = as_array("x", x)
    if not isinstance(routing, Routing):
        raise TypeError(f"routing must be the Routing of js.route, not {type(routing).__name__}")
    devices = devices_along("dispatch", axis_name, _SPLIT)
    assignments, top_k = _check_routing(x, routing, devices)
    room = assignments if capacity is None else check_count("capacity", capacity)
    axis = Axis(axis_name, devices, min(room, assignments), assignments)
    _tell("dispatch", f"{x.dtype.name}{list(x.shape)} to {devices} devices")
    return _dispatch(axis, (x.shape[0], top_k), x, routing)


def _dispatch(
    axis: Axis, shape: tuple[int, int], x: jax.Array, routing: Routing
) -> tuple[jax.Array, Exchange]:
    me = jax.lax.axis_index(axis.name)
    mine = jnp.zeros((axis.devices, routing.group_sizes.size), jnp.int32)
    # A sum, and not a gather: the result is then known to be the same on all devices.
    mine, sizes, me = lift(mine, routing.group_sizes, me)
    table = jax.lax.psum(mine.at[me].set(sizes), axis.name)
    overflow = overflows(axis, table)
    _check_room(axis, overflow)
    x, order, everywhere, me = lift(x, routing.order, table, me)
    rows = there(axis, _sorted_rows(x, order, shape[1]), everywhere, me)
    place = jnp.zeros_like(order).at[order].set(jnp.arange(axis.assignments, dtype=jnp.int32))
    sizes = group_sizes(plan_of(axis, everywhere, me))
    return rows, Exchange(sizes, overflow, table, place, axis, shape)


@takes_variables
def combine(
    y: Float[ArrayLike, "rows n"],
    exchange: Exchange,
    weights: Float[ArrayLike, "t top_k"] | None = None,
) -> Float[Array, "t n"]:
    """Send the results of the experts back to the devices of their tokens, and add up the results
    of each token in float32. Call it inside the same `jax.shard_map` as `js.dispatch`.
    Differentiable in y and weights, in reverse and forward mode.

    Args:
        y: float32, bfloat16 or float16 [devices * capacity, n]: the results of this device's
            experts for the rows of `dispatch`. Rows past those that were received are not read.
        exchange: the second result of `js.dispatch`.
        weights: floats [t, top_k], the weight of each assignment; None: 1.

    Returns:
        [t, n] in the dtype of y; an assignment that was not sent counts as 0.

    Raises:
        TypeError, ValueError: for a wrong rank, shape, type or dtype, naming the argument; for a
            call outside of the `jax.shard_map`.
    """
    check_rank("y", y, 2)
    y = as_array("y", y)
    check_float("y", y)
    if not isinstance(exchange, Exchange):
        raise TypeError(f"exchange must be that of js.dispatch, not {type(exchange).__name__}")
    axis, shape = exchange.axis, exchange.shape
    devices_along("combine", axis.name, _SPLIT)
    if y.shape[0] != axis.rows:
        raise ValueError(f"y has {y.shape[0]} rows; the exchange has room for {axis.rows}")
    if weights is not None:
        check_rank("weights", weights, 2)
        weights = as_array("weights", weights)
        check_float("weights", weights)
        if weights.shape[0] != shape[0] or (shape[0] and weights.shape != shape):
            raise ValueError(f"weights has shape {weights.shape}; the tokens need {shape}")
    _tell("combine", f"{y.dtype.name}{list(y.shape)} -> {shape[0]} tokens")
    return _combine(y, exchange, weights)


def _tell(op: str, shapes: str) -> None:
    """Note the call for `js.explain`."""
    record(op, shapes, plan(op, None, offered_by(op)), None, None)


def _combine(y: jax.Array, exchange: Exchange, weights: jax.Array | None) -> jax.Array:
    axis, shape = exchange.axis, exchange.shape
    me = jax.lax.axis_index(axis.name)
    y, table, place, weights, me = lift(y, exchange.table, exchange.place, weights, me)
    sorted_rows = back(axis, y, table, me)
    if not sorted_rows.size:
        return jnp.zeros_like(y, shape=(shape[0], y.shape[1]))
    found = sorted_rows.at[place].get(mode="promise_in_bounds", unique_indices=True)
    parts = found.reshape(*shape, y.shape[1]).astype(jnp.float32)
    if weights is not None:
        parts = parts * weights.astype(jnp.float32)[..., None]
    return parts.sum(1).astype(y.dtype)


def _sorted_rows(x: jax.Array, order: jax.Array, top_k: int) -> jax.Array:
    """[A, d]: the token of each sorted row. The transpose adds up a token's rows in order."""
    if not order.size:
        return jnp.zeros_like(x, shape=(0, x.shape[1]))
    each = jnp.broadcast_to(x[:, None], (x.shape[0], top_k, x.shape[1]))
    flat = each.reshape(order.size, x.shape[1])
    return flat.at[order].get(mode="promise_in_bounds", unique_indices=True)


def _check_routing(x: jax.Array, routing: Routing, devices: int) -> tuple[int, int]:
    """Assignments of this device, and of each token."""
    experts, assignments, tokens = routing.group_sizes.size, routing.order.size, x.shape[0]
    if routing.order.ndim != 1:
        raise ValueError("routing is a stack of several: take it apart with jax.vmap")
    if experts % devices:
        raise ValueError(
            f"routing has {experts} experts, which {devices} devices of the axis do not divide "
            "evenly: add experts that no token goes to"
        )
    if assignments % max(tokens, 1) or (assignments and not tokens):
        raise ValueError(f"routing has {assignments} assignments; x has {tokens} tokens")
    if devices * assignments >= 2**31:
        raise ValueError(f"{devices} devices of {assignments} assignments: 2^31 rows or more")
    return assignments, assignments // max(tokens, 1)


def _check_room(axis: Axis, overflow: jax.Array) -> None:
    """Under `js.checked()`: raise for more assignments than the capacity."""
    if not settings().checked or axis.capacity == axis.assignments:
        return

    def raise_if(overflow: np.ndarray) -> None:
        if overflow:
            raise ValueError(
                f"dispatch: a device has more assignments for another than capacity="
                f"{axis.capacity}: those past it were not sent"
            )

    raise_on_host(raise_if, overflow)
