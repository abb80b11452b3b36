"""How `sparse_attention` and its gradient run: vmap folded into the batch, a mesh, an
implementation per platform, a variant per call.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from jaxsparse.core.batching import loop_over, unfold
from jaxsparse.core.types import Shaped
from jaxsparse.ffi import dispatch, partitioned
from jaxsparse.index.blocks.dense import dense_of
from jaxsparse.index.blocks.grid import Grid
from jaxsparse.index.blocks.lists import codes_of
from jaxsparse.ops.sparse_attention import native
from jaxsparse.ops.sparse_attention.folding import folded
from jaxsparse.ops.sparse_attention.params import AttentionParams, Backward, Forward
from jaxsparse.ops.sparse_attention.shards import mesh_rule
from jaxsparse.reference.sparse_attention import sparse_attention, sparse_attention_grad
from jaxsparse.select.config import settings
from jaxsparse.select.select import choose
from jaxsparse.select.select import run as run_choice
from jaxsparse.select.sparse_attention import OP, AttentionProblem, against
from jaxsparse.select.table import DENSE

#: The implementations that this op offers.
OFFERED = ("cuda", "cpu", "reference")


def attend(p: AttentionParams) -> Callable[..., Any]:
    """The arrays of `Forward` -> (out, lse), with its vmap rule."""
    alone = dispatch(
        "sparse_attention",
        p.implementation,
        cuda=functools.partial(_native, p, "cuda"),
        cpu=functools.partial(_native, p, "cpu"),
        reference=functools.partial(reference, p),
    )
    return _batched(alone, Forward, ("out", "lse"))


def gradients(p: AttentionParams) -> Callable[..., Any]:
    """The arrays of `Backward` -> (dq, dk, dv), with its vmap rule."""
    alone = dispatch(
        "sparse_attention_grad",
        p.implementation,
        cuda=functools.partial(_native_gradients, p, "cuda"),
        cpu=functools.partial(_native_gradients, p, "cpu"),
        reference=functools.partial(reference_gradients, p),
    )
    return _batched(alone, Backward, ("q", "k", "v"))


def _batched(
    alone: Callable[..., Any], kind: type[Forward] | type[Backward], results: tuple[str, ...]
) -> Callable[..., Any]:
    """`alone` with its vmap rule, split by a mesh; slopes that differ take a loop."""

    @custom_vmap
    def run(*args: jax.Array):
        rule = mesh_rule(kind(*args), results)
        return partitioned(rule, alone, lambda _, *args: alone(*args))(*args)

    @run.def_vmap
    def rule(axis_size: int, in_batched: Sequence[bool], *args: jax.Array):
        every = (True,) * len(results)
        if in_batched[kind._fields.index("slopes")]:
            return loop_over(run, args, in_batched), every
        arrays, batch = folded(kind(*args), in_batched, axis_size)
        return tuple(unfold(v, axis_size, batch) for v in run(*arrays)), every

    return run


def problem_of(
    p: AttentionParams,
    platform: str,
    shapes: tuple[Shaped, Shaped, Shaped],
    blocks: int,
    slots: int,
    added: bool,
    gradient: bool = False,
) -> AttentionProblem:
    """What the choice for one call depends on: `shapes` are those of q, k and v, `blocks` and
    `slots` are the whole mask's, `added` says that there are slopes or a bias, `gradient` that the
    call is of the gradient.
    """
    q, k, v = shapes
    return AttentionProblem(
        platform,
        tuple(q.shape),
        tuple(k.shape),
        v.shape[3],
        p.block_size,
        blocks,
        slots,
        q.dtype.name,
        p.precision,
        p.scale,
        added or p.soft_cap > 0,
        p.implementation is not None,
        gradient,
        settings().deterministic,
    )


def describe(
    p: AttentionParams,
    name: str,
    shapes: tuple[Shaped, Shaped, Shaped],
    blocks: int,
    slots: int,
    added: bool,
):
    """For `js.explain`: the choice of implementation `name`, and what speaks against its other
    variants.
    """
    if name == "reference":
        return None, {}
    problem = problem_of(p, name, shapes, blocks, slots, added)
    return choose(OP, problem), against(problem)


def _chosen(
    p: AttentionParams,
    platform: str,
    arrays: Forward | Backward,
    dense: Callable[..., Any],
    kernel: Callable[..., Any],
) -> Any:
    """What `select/` chooses, on these arrays; the dense scores are among it."""
    sizes = (*arrays.q.shape, *arrays.k.shape, arrays.v.shape[3], arrays.words.shape[0])
    if 0 in sizes:
        return dense(p, *arrays)
    blocks = math.prod(arrays.kv_blocks.shape)
    added = arrays.slopes is not None or arrays.bias is not None
    shapes = arrays.q, arrays.k, arrays.v
    gradient = isinstance(arrays, Backward)
    problem = problem_of(p, platform, shapes, blocks, arrays.words.shape[0], added, gradient)
    choice = choose(OP, problem)
    branches = {
        name: functools.partial(dense, p)
        if name == DENSE
        else functools.partial(kernel, p, platform, name)
        for name in choice.names
    }
    count = arrays.kv_counts.sum(dtype=jnp.int32)
    return run_choice(problem.known, choice, branches, count)(*arrays)


def _native(p: AttentionParams, platform: str, *args: jax.Array):
    return _chosen(p, platform, Forward(*args), reference, native.forward)


def _native_gradients(p: AttentionParams, platform: str, *args: jax.Array):
    return _chosen(p, platform, Backward(*args), reference_gradients, native.backward)


def _dense_mask(p: AttentionParams, arrays: Forward | Backward) -> jax.Array:
    grid = Grid(*p.block_size, arrays.q.shape[1], arrays.k.shape[1])
    lists = arrays.kv_counts, arrays.kv_blocks, arrays.kv_slots
    codes = codes_of(*lists, grid.columns, arrays.words.shape[0])
    return dense_of(codes, arrays.words, grid)


def reference(p: AttentionParams, *args: jax.Array):
    """The arrays of `Forward` -> (out, lse), over the dense scores."""
    a = Forward(*args)
    options = (a.slopes, a.bias, p.scale, p.soft_cap, p.lax_precision)
    return sparse_attention(a.q, a.k, a.v, _dense_mask(p, a), *options)


def reference_gradients(p: AttentionParams, *args: jax.Array):
    """The arrays of `Backward` -> (dq, dk, dv), over the dense scores."""
    a = Backward(*args)
    options = (a.slopes, a.bias, p.scale, p.soft_cap, p.lax_precision)
    return sparse_attention_grad(*a[:7], _dense_mask(p, a), *options)
