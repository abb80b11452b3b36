"""Which rows go where. Every device computes it from one table: how many assignments each device
has for each expert. Device s sends a contiguous run of its sorted rows to device d. Device d sorts
what it receives by expert, and within an expert by the device that sent it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from typing import NamedTuple

import jax
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True)
class Axis:
    """A mesh axis over which rows are exchanged.

    Attributes:
        name: of the axis, or a tuple of names.
        devices: its size.
        capacity: rows that one device may send to another.
        assignments: sorted rows of one device.
    """

    name: Hashable
    devices: int
    capacity: int
    assignments: int

    @property
    def rows(self) -> int:
        """Rows that one device has room for."""
        return self.devices * self.capacity


class Plan(NamedTuple):
    """The exchange as one device, `me`, sees it; D devices with E experts each.

    Attributes:
        sent: int32[D, E]: rows for each expert of each device.
        sent_at: int32[D, E]: where they begin among the sorted rows of `me`.
        sent_to: int32[D, E]: where they begin among the rows of that device.
        received: int32[D, E]: rows of each device for each expert of `me`.
        received_at: int32[D, E]: where they begin among the rows of `me`.
        received_from: int32[D, E]: where they begin among the sorted rows of that device.
    """

    sent: jax.Array
    sent_at: jax.Array
    sent_to: jax.Array
    received: jax.Array
    received_at: jax.Array
    received_from: jax.Array


def plan_of(axis: Axis, table: jax.Array, me: jax.Array) -> Plan:
    """The plan of `me` by `table`, int32[D, D * E]: assignments of each device to each expert."""
    devices, capacity = axis.devices, axis.capacity
    wanted = table.reshape(devices, devices, -1)  # [from, to, expert]
    ends = jnp.cumsum(wanted, 2)
    # Rows past the capacity are cut off the end of a run.
    kept = jnp.minimum(ends, capacity) - jnp.minimum(ends - wanted, capacity)
    begins = _before(table).reshape(wanted.shape)
    by_expert = kept.transpose(1, 2, 0)  # [to, expert, from]
    lands = _before(by_expert.reshape(devices, -1)).reshape(by_expert.shape).transpose(2, 0, 1)
    return Plan(kept[me], begins[me], lands[me], kept[:, me], lands[:, me], begins[:, me])


def overflows(axis: Axis, table: jax.Array) -> jax.Array:
    """bool[]: whether some device has more rows for another than the capacity."""
    return jnp.any(table.reshape(axis.devices, axis.devices, -1).sum(2) > axis.capacity)


def group_sizes(plan: Plan) -> jax.Array:
    """int32[E]: rows of each expert of this device."""
    return plan.received.sum(0, dtype=jnp.int32)


def _before(sizes: jax.Array) -> jax.Array:
    """The sum of what is before each entry of a row."""
    return jnp.cumsum(sizes, 1, dtype=jnp.int32) - sizes
