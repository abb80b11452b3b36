"""How `masked_matmul` runs: vmap folded into the list of products, an implementation per platform,
a variant per call.
"""

import dataclasses
import functools
import math
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap

from jaxsparse.bits import pack_mask
from jaxsparse.ffi import Implementation, dispatch, ffi_call
from jaxsparse.ops.batching import unfold
from jaxsparse.reference import masked_matmul as reference
from jaxsparse.select import Problem, choose
from jaxsparse.select.select import select
from jaxsparse.select.variants import table

#: The implementations that this op offers.
OFFERED = ("cpu", "reference")
_ALIGN = 64
_MAX_WORKERS = 64
_GROUP_PANELS = 72

Block = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class MatmulParams:
    """What is static about one call: the block sizes of the masks of a, b and the result, and
    options.
    """

    blocks: tuple[Block, Block, Block]
    precision: str
    out_dtype: str
    implementation: Implementation = None

    @property
    def lax_precision(self) -> lax.Precision:
        """The precision as jax.lax takes it."""
        return lax.Precision.HIGHEST if self.precision == "highest" else lax.Precision.DEFAULT


def product_count(arrays: Any) -> int:
    """How many products a call makes: the longest first axis."""
    lengths = {v.shape[0] for v in arrays if v is not None}
    return max(lengths) if 0 not in lengths else 0


def product(p: MatmulParams) -> Callable[..., jax.Array]:
    """A function (a, b, a_mask, b_mask, out_mask) -> out[L, m, n] with its vmap rule; first axes
    are L or 1.
    """

    @custom_vmap
    def run(*args):
        offered = {"cpu": _native, "reference": _reference}
        return dispatch(
            "masked_matmul",
            p.implementation,
            **{name: functools.partial(f, p) for name, f in offered.items()},
        )(*args)

    @run.def_vmap
    def rule(axis_size, in_batched, *args):
        flat = [
            None if v is None else v[0] if b else v for v, b in zip(args, in_batched, strict=True)
        ]
        lists = product_count(flat)
        folded = [
            _fold(v, bool(b), axis_size, lists) if v is not None else None
            for v, b in zip(args, in_batched, strict=True)
        ]
        return unfold(product(p)(*folded), axis_size), True

    return run


def _fold(value: jax.Array, batched: bool, axis_size: int, lists: int) -> jax.Array:
    """[N, L or 1, ...] -> [N*L, ...]; what no batch and no list varies stays a list of one."""
    if not batched and value.shape[0] == 1:
        return value
    value = value if batched else value[None]
    shape = (axis_size, lists, *value.shape[2:])
    return jnp.broadcast_to(value, shape).reshape(axis_size * lists, *value.shape[2:])


def block_counts(*masks: Any) -> tuple[int, jax.Array]:
    """How many blocks the masks have together, and how many of them are set."""
    given = [m for m in masks if m is not None]
    total = sum(math.prod(m.shape) for m in given)
    counts = [m.sum(dtype=jnp.int32) for m in given]
    return total, functools.reduce(jnp.add, counts, jnp.zeros((), jnp.int32))


def problem_of(p: MatmulParams, a: Any, b: Any, masks: Any) -> Problem:
    """What the tuning tables know a masked product by."""
    features = {
        "products": product_count((a, b, *masks)),
        "rows": a.shape[1],
        "depth": a.shape[2],
        "outputs": b.shape[2],
    }
    for name, mask, block in zip(("a", "b", "out"), masks, p.blocks, strict=True):
        for axis, size in zip(("rows", "columns"), block, strict=True):
            features[f"{name}_block_{axis}"] = 0 if mask is None else size
    return Problem("masked_matmul", "cpu", a.dtype.name, features, block_counts(*masks)[0])


def describe(p: MatmulParams, name: str, a: Any, b: Any, masks: Any):
    """For `js.explain`: the choice of implementation `name`, and what speaks against its other
    variants.
    """
    if name == "reference":
        return None, {}
    return choose(problem_of(p, a, b, masks), [*table("masked_matmul", name), "dense"]), {}


def _native(p: MatmulParams, a, b, a_mask, b_mask, out_mask):
    masks = (a_mask, b_mask, out_mask)
    shape = (product_count((a, b, *masks)), a.shape[1], b.shape[2])
    scratch = cpu_scratch(a.shape[2], b_mask is not None)

    def call(variant: str, a: Any, b: Any, *masks: Any) -> jax.Array:
        words = [jnp.zeros((0, 0, 0), jnp.uint32) if m is None else pack_mask(m) for m in masks]
        (a_rows, a_cols), (b_rows, b_cols), (out_rows, out_cols) = p.blocks
        return ffi_call(
            "jaxsparse_masked_matmul",
            [(shape, p.out_dtype), ((scratch,), np.uint8)],
            a,
            b,
            *words,
            a_rows=a_rows,
            a_cols=a_cols,
            b_rows=b_rows,
            b_cols=b_cols,
            out_rows=out_rows,
            out_cols=out_cols,
            precision=int(p.precision == "highest"),
            variant=table("masked_matmul", "cpu")[variant].number,
        )[0]

    branches: dict[str, Callable[..., jax.Array]] = {
        name: functools.partial(call, name) for name in table("masked_matmul", "cpu")
    }
    branches["dense"] = functools.partial(_reference, p)
    run = select(problem_of(p, a, b, masks), branches, block_counts(*masks)[1])
    return run(a, b, *masks)


def cpu_scratch(depth: int, masked_b: bool) -> int:
    """Workspace of the CPU handler: per worker a group of panels, a strip, and its lists of
    columns.
    """
    panels = 4 * depth * min(max((256 << 10) // max(depth, 1), 64), 512)
    strip = 4 * 12 * (-(-depth // 64) * 64) + 4 * 5 * depth
    lists = (8 + 5 * _GROUP_PANELS) * depth if masked_b else 0
    return _workers() * (panels + strip + lists + 8 * _GROUP_PANELS + 12 * _ALIGN) + 2 * _ALIGN


def _workers() -> int:
    """Workers that the scratch has room for; the handler takes as many as its pool has."""
    return min(os.cpu_count() or 1, _MAX_WORKERS)


def _reference(p: MatmulParams, a, b, a_mask, b_mask, out_mask):
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
