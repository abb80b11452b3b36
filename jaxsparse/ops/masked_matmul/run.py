"""How `masked_matmul` runs: vmap folded into the list of products, an implementation per platform,
a variant per call.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Sequence

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from jaxsparse.core.types import Shaped
from jaxsparse.ffi import Shards, dispatch, partitioned
from jaxsparse.ops.masked_matmul import native as native
from jaxsparse.ops.masked_matmul.params import Masks, MatmulParams
from jaxsparse.ops.masked_matmul.shards import mesh_rule
from jaxsparse.reference import masked_matmul as reference
from jaxsparse.select.masked_matmul import OP, MatmulProblem, against
from jaxsparse.select.select import choose
from jaxsparse.select.select import run as run_choice
from jaxsparse.select.table import DENSE

#: The implementations that this op offers.
OFFERED = ("cuda", "cpu", "reference")


def product_count(arrays: Iterable[Shaped | None]) -> int:
    """How many products a call makes: the longest first axis."""
    return longest(v.shape[0] for v in arrays if v is not None)


def longest(lengths: Iterable[int]) -> int:
    """What axes of these lengths, of which those of 1 are shared, broadcast to."""
    found = set(lengths)
    return max(found) if 0 not in found else 0


def product(p: MatmulParams) -> Callable[..., jax.Array]:
    """A function (a, b, a_mask, b_mask, out_mask) -> out[L, m, n] with its vmap rule; first axes
    are L or 1.
    """

    def on_any(p: MatmulParams) -> Callable[..., jax.Array]:
        return dispatch(
            p.called,
            p.implementation,
            cuda=functools.partial(_on_device, p, "cuda"),
            cpu=functools.partial(_on_device, p, "cpu"),
            reference=functools.partial(_reference, p),
        )

    def in_shard(shards: Shards, *args: jax.Array | None) -> jax.Array:
        part = dataclasses.replace(p, out_dtype="float32") if shards.count("k") > 1 else p
        return on_any(part)(*args)

    @custom_vmap
    def run(a: jax.Array, b: jax.Array, *masks: jax.Array | None):
        return partitioned(mesh_rule(p, a, b, *masks), on_any(p), in_shard)(a, b, *masks)

    @run.def_vmap
    def rule(axis_size: int, in_batched: Sequence[bool], *args: jax.Array | None):
        given = [(v, b) for v, b in zip(args, in_batched, strict=True) if v is not None]
        lists = longest(v.shape[1 if b else 0] for v, b in given)
        folded = [
            _fold(v, bool(b), axis_size, lists) if v is not None else None
            for v, b in zip(args, in_batched, strict=True)
        ]
        out = product(p)(*folded)
        return out.reshape(axis_size, lists, *out.shape[1:]), True

    return run


def _fold(value: jax.Array, batched: bool, axis_size: int, lists: int) -> jax.Array:
    """[N, L or 1, ...] -> [N*L, ...]; what no batch and no list varies stays a list of one."""
    if not batched and value.shape[0] == 1:
        return value
    value = value if batched else value[None]
    shape = (axis_size, lists, *value.shape[2:])
    return jnp.broadcast_to(value, shape).reshape(axis_size * lists, *value.shape[2:])


def block_counts(*masks: jax.Array | None) -> tuple[int, jax.Array]:
    """How many blocks the masks have together, and how many of them are set."""
    given = [m for m in masks if m is not None]
    total = sum(math.prod(m.shape) for m in given)
    counts = [m.sum(dtype=jnp.int32) for m in given]
    return total, functools.reduce(jnp.add, counts, jnp.zeros((), jnp.int32))


def problem_of(p: MatmulParams, platform: str, a: Shaped, b: Shaped, masks: Masks) -> MatmulProblem:
    """What the choice for one call depends on."""
    a_mask, b_mask, out_mask = (None if m is None else tuple(m.shape) for m in masks)
    return MatmulProblem(
        platform,
        tuple(a.shape),
        tuple(b.shape),
        (a_mask, b_mask, out_mask),
        p.blocks,
        product_count((a, b, *masks)),
        sum(math.prod(m.shape) for m in masks if m is not None),
        a.dtype.name,
        a.dtype.itemsize,
        p.precision,
        p.turned,
        p.density,
        p.implementation is not None,
        "" if p.called == OP else p.called,
    )


def describe(p: MatmulParams, name: str, a: Shaped, b: Shaped, masks: Masks):
    """For `js.explain`: the choice of implementation `name`, and what speaks against its other
    variants.
    """
    if name == "reference":
        return None, {}
    problem = problem_of(p, name, a, b, masks)
    return choose(OP, problem), against(problem)


def _on_device(
    p: MatmulParams,
    platform: str,
    a: jax.Array,
    b: jax.Array,
    a_mask: jax.Array | None,
    b_mask: jax.Array | None,
    out_mask: jax.Array | None,
):
    """Run the variant that `select/` chooses; the dense product is among them."""
    masks = (a_mask, b_mask, out_mask)
    problem = problem_of(p, platform, a, b, masks)
    choice = choose(OP, problem)
    branches: dict[str, Callable[..., jax.Array]] = {
        name: functools.partial(_reference, p)
        if name == DENSE
        else functools.partial(native.product, p, platform, name)
        for name in choice.names
    }
    run = run_choice(problem.known, choice, branches, block_counts(*masks)[1])
    return run(a, b, *masks)


def _reference(
    p: MatmulParams,
    a: jax.Array,
    b: jax.Array,
    a_mask: jax.Array | None,
    b_mask: jax.Array | None,
    out_mask: jax.Array | None,
):
    return reference.masked_matmul(
        a,
        b,
        a_mask,
        b_mask,
        out_mask,
        blocks=p.blocks,
        lists=product_count((a, b, a_mask, b_mask, out_mask)),
        precision=p.lax_precision,
        out_dtype=jnp.dtype(p.out_dtype),
    )
