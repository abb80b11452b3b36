"""`route`: from each token's experts to the sorted order in which `grouped_matmul` works."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
from jax.custom_batching import custom_vmap
from jax.typing import ArrayLike
from jaxtyping import Int

from jaxsparse.core.batching import kept
from jaxsparse.core.checks import check_rank
from jaxsparse.core.integers import as_int32, check_count
from jaxsparse.core.variables import takes_variables
from jaxsparse.ffi import Implementation, Rule, dispatch, ffi_call, partitioned
from jaxsparse.ffi.faults import raise_on_host
from jaxsparse.ffi.platform import NAMES, implementation_key, plan
from jaxsparse.ffi.register import native
from jaxsparse.ffi.whole import kept_whole
from jaxsparse.index.experts import Routing as Routing
from jaxsparse.reference import route as reference
from jaxsparse.select.config import settings
from jaxsparse.select.explain import Counted, record


@takes_variables
def route(
    expert_ids: Int[ArrayLike, "t top_k"],
    num_experts: int,
    *,
    implementation: Implementation = None,
) -> Routing:
    """Sort the assignments of tokens to experts by expert, on the device; equal experts keep their
    order.

    Args:
        expert_ids: any integer dtype [t, top_k]. An id outside [0, num_experts), such as -1, is
            dropped: its assignment is sorted to the end and belongs to no group. `js.checked()`
            raises for one of `num_experts` or more.
        num_experts: how many experts there are; may be 0.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.

    Returns:
        A `Routing` of int32 arrays, for `grouped_matmul(gather=, scatter=)`. `routing.order` picks
        the row weights: `weights.reshape(-1)[routing.order]`.

    Raises:
        TypeError, ValueError: for a wrong rank, dtype or number, naming the argument; ValueError
            when a named implementation cannot run.
    """
    check_rank("expert_ids", expert_ids, 2)
    # An id that int32 cannot hold must not wrap into range.
    expert_ids = kept_whole("route", "expert_ids", as_int32("expert_ids", expert_ids), (), _WHY)
    num_experts = check_count("num_experts", num_experts)
    if expert_ids.size >= 2**31:
        raise ValueError(f"expert_ids has shape {expert_ids.shape}: 2^31 - 1 assignments at most")
    _check_ids(expert_ids, num_experts)
    routing = Routing(*_run(expert_ids, num_experts, implementation_key(implementation)))
    record(
        "route",
        f"{expert_ids.dtype.name}{list(expert_ids.shape)} to {num_experts} experts",
        plan("route", implementation, NAMES),
        None,
        Counted(expert_ids.size, routing.group_sizes.sum()),
        "assignments",
    )
    return routing


def _check_ids(expert_ids: jax.Array, num_experts: int) -> None:
    """Under `js.checked()`: raise for ids past the last expert; a negative one means none."""
    if not settings().checked:
        return

    def raise_if(count: np.ndarray) -> None:
        if count:
            raise ValueError(f"route: expert_ids has {count} ids past the {num_experts} experts")

    raise_on_host(raise_if, (expert_ids >= num_experts).sum())


@functools.partial(jax.jit, static_argnums=(1, 2))
def _run(
    expert_ids: jax.Array, num_experts: int, implementation: Implementation
) -> tuple[jax.Array, ...]:
    ids = expert_ids.reshape(1, -1)
    order, source, sizes = _router(expert_ids.shape[1], num_experts, implementation)(ids)
    return order[0], source[0], source[0], sizes[0]


_WHY = (
    "the assignments of all tokens are sorted together: call route inside jax.shard_map, where "
    "each shard sorts its own"
)
#: A mesh splits lists of assignments, and none of them.
_MESH_RULE = Rule(
    "route",
    ("l a",),
    ("l .", "l .", "l ."),
    ("l",),
    ("expert_ids",),
    from_end=True,
    why={"a": _WHY},
)


@kept
def _router(top_k: int, num_experts: int, implementation: Implementation) -> Any:
    """A function of s32[lists, assignments] with a vmap rule that folds the batch axis into the
    lists.
    """

    def on_device(platform: str, ids: jax.Array) -> tuple[jax.Array, ...]:
        words = num_experts + 1
        if platform == "cuda":
            words = native(platform).route_workspace(*ids.shape, num_experts)
        results = [(ids.shape, np.int32), (ids.shape, np.int32)]
        results += [((ids.shape[0], num_experts), np.int32), ((words,), np.int32)]
        return tuple(ffi_call("jaxsparse_route", results, ids, top_k=max(top_k, 1))[:3])

    alone = dispatch(
        "route",
        implementation,
        cuda=functools.partial(on_device, "cuda"),
        cpu=functools.partial(on_device, "cpu"),
        reference=functools.partial(reference.route, top_k=top_k, num_experts=num_experts),
    )
    split = partitioned(_MESH_RULE, alone, lambda _, ids: alone(ids))

    @custom_vmap
    def run(ids: jax.Array) -> tuple[jax.Array, ...]:
        return split(ids)

    @run.def_vmap
    def rule(axis_size: int, in_batched: list[bool], ids: jax.Array):
        out = run(ids.reshape(axis_size * ids.shape[1], ids.shape[2]))
        shape = (axis_size, ids.shape[1])
        return tuple(v.reshape(*shape, v.shape[1]) for v in out), (True, True, True)

    return run
