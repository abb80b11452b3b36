"""The mesh axes of a sharding that XLA chose.

XLA may split an axis over a piece of a mesh axis: where leading axes of 14 and 5 are joined on a
mesh of 4, over 2 of the 4. No PartitionSpec says so, and JAX's own decoding fails.
"""

import itertools
from typing import Any

import numpy as np
from jax.sharding import PartitionSpec

from jaxsparse.ffi.rule import Axes


def spec_on(mesh: Any, sharding: Any, ndim: int) -> PartitionSpec:
    """The axes of `mesh` over which each of `ndim` axes is split; a piece of a mesh axis counts as
    the whole one.
    """
    places = sharding.devices_indices_map((mesh.size,) * ndim)
    taken: set[str] = set()
    spec: list[Axes | None] = []
    for i in range(ndim):
        starts = np.array([places[device][i].start or 0 for device in mesh.devices.flat])
        free = tuple(name for name in mesh.axis_names if name not in taken)
        spec.append(_axes(mesh, starts.reshape(mesh.devices.shape), free) or None)
        taken.update(spec[-1] or ())
    return PartitionSpec(*spec)


def _axes(mesh: Any, starts: np.ndarray, free: Axes) -> Axes:
    """The axes, major first, that start their shards there; else the fewest that tell shards
    apart.
    """
    orders = [o for n in range(len(free) + 1) for o in itertools.permutations(free, n)]
    return next(
        (order for order in orders if np.array_equal(_starts(mesh, order), starts)),
        next((order for order in orders if _tells_apart(mesh, order, starts)), ()),
    )


def _starts(mesh: Any, order: Axes) -> np.ndarray:
    """Where the shard of each device starts of an axis of `mesh.size`, under this order."""
    where, count = np.zeros(mesh.devices.shape, int), 1
    for name in order:
        size, place = mesh.shape[name], mesh.axis_names.index(name)
        along = np.arange(size).reshape([-1 if i == place else 1 for i in range(where.ndim)])
        where, count = where * size + along, count * size
    return where * (mesh.size // count)


def _tells_apart(mesh: Any, order: Axes, starts: np.ndarray) -> bool:
    others = tuple(i for i, name in enumerate(mesh.axis_names) if name not in order)
    return bool((starts == starts.min(axis=others, keepdims=True)).all())
