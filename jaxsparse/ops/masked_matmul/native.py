"""`masked_matmul` on its native handlers: operands, attributes and workspaces."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsparse.bits import pack_mask
from jaxsparse.core.dtypes import DTYPES
from jaxsparse.core.types import Shaped
from jaxsparse.ffi import absent, ffi_call
from jaxsparse.ffi.register import native
from jaxsparse.ops.masked_matmul.params import Blocks, MatmulParams
from jaxsparse.select.masked_matmul import (
    FINE,
    SAMPLED,
    SORTED,
    TURNED,
    has_boxes,
    sorts,
    transposes,
)
from jaxsparse.select.variants import table

_SIDES = ("rows", "cols")


def product(
    p: MatmulParams,
    platform: str,
    variant: str,
    a: jax.Array,
    b: jax.Array,
    a_mask: jax.Array | None,
    b_mask: jax.Array | None,
    out_mask: jax.Array | None,
) -> jax.Array:
    """One call of `variant`: [L, m, n]."""
    masks = a_mask, b_mask, out_mask
    if transposes(platform, masks):
        for_a, for_b, for_out = ((columns, rows) for rows, columns in p.blocks)
        operands = _swap(b), _swap(a), _swap(b_mask), _swap(a_mask), _swap(out_mask)
        return _swap(_call(p, platform, variant, (for_b, for_a, for_out), *operands))
    return _call(p, platform, variant, p.blocks, a, b, *masks)


def _swap(value: jax.Array | None) -> Any:
    return None if value is None else jnp.swapaxes(value, 1, 2)


def _call(
    p: MatmulParams,
    platform: str,
    variant: str,
    blocks: Blocks,
    a: jax.Array,
    b: jax.Array,
    a_mask: jax.Array | None,
    b_mask: jax.Array | None,
    out_mask: jax.Array | None,
):
    masks = a_mask, b_mask, out_mask
    operands = (a, b, *masks)
    shape = (max(v.shape[0] for v in operands if v is not None), a.shape[1], b.shape[2])
    if any(v is not None and v.shape[0] == 0 for v in operands):
        shape = (0, *shape[1:])
    sorted_columns = variant in ("auto", SORTED) and sorts(
        a.dtype.itemsize, blocks[0], b.shape, masks
    )
    bools = platform == "cuda" and masks[1] is None and variant not in ("direct", FINE)
    bools = bools and (sorted_columns or has_boxes(a.dtype.itemsize, blocks[0]))
    words = [
        absent(m if m is None or (i == 0 and bools) else pack_mask(m), np.uint32, (0, 0, 0))
        for i, m in enumerate(masks)
    ]
    sizes = {
        f"{name}_{side}": size
        for name, block in zip(("a", "b", "out"), blocks, strict=True)
        for side, size in zip(_SIDES, block, strict=True)
    }
    scratch = _workspace(platform, variant, blocks, shape, a, b, masks)
    if variant == SAMPLED:
        b = _swap(b)
    if variant == TURNED:
        a = _swap(a)
    return ffi_call(
        "jaxsparse_masked_matmul",
        [(shape, p.out_dtype), ((scratch,), np.uint8)],
        a,
        b,
        *words,
        precision=int(p.precision == "highest"),
        variant=table("masked_matmul", platform)[variant].number,
        **sizes,  # pyright: ignore[reportArgumentType]
    )[0]


def _workspace(
    platform: str,
    variant: str,
    blocks: Blocks,
    shape: tuple[int, ...],
    a: Shaped,
    b: Shaped,
    masks: Sequence[Shaped | None],
):
    if platform == "cpu":
        return native(platform).masked_matmul_workspace(a.shape[2], masks[1] is not None)
    if variant == "direct":
        return 0
    lists = [0 if m is None else m.shape[0] for m in masks]
    sizes, dtype = (*shape, a.shape[2], a.shape[0], b.shape[0]), DTYPES[a.dtype.name]
    if variant == SAMPLED:
        return native("cuda").sampled_matmul_workspace(sizes, lists[2], blocks[2], dtype)
    if variant == FINE:
        return native("cuda").fine_matmul_workspace(sizes, lists[0], dtype)
    turned = variant == TURNED
    return native("cuda").masked_matmul_workspace(sizes, lists, blocks[0], dtype, turned)
