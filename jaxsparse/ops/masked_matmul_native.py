"""`masked_matmul` on its native handlers: operands, attributes, workspaces, and which variant takes
which problem.
"""

import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsparse.bits import pack_mask
from jaxsparse.ffi import ffi_call
from jaxsparse.ffi.platform import is_hopper
from jaxsparse.ffi.register import native
from jaxsparse.select.variants import table

DTYPES = {"float32": 0, "bfloat16": 1, "float16": 2}
_ALIGN = 64
_MAX_WORKERS = 64
_GROUP_PANELS = 72
_SIDES = ("rows", "cols")
#: The variant of a mask on the result alone. It reads b with K contiguous, as it lies where b is
#: the other operand of a gradient.
SAMPLED = "sampled"
#: The variant of columns that are kept one by one, for 32 rows together.
SORTED = "sorted"
#: Panels of an operand that lies transposed: it turns what the mask keeps.
TURNED = "turned"


def product(p: Any, platform: str, variant: str, a: Any, b: Any, *masks: Any) -> jax.Array:
    """One call of `variant`: [L, m, n]."""
    if transposes(platform, masks):
        a_mask, b_mask, out_mask = map(_swap, masks)
        blocks = tuple(p.blocks[i][::-1] for i in (1, 0, 2))
        operands = (_swap(b), _swap(a), b_mask, a_mask, out_mask)
        return _swap(_call(p, platform, variant, blocks, *operands))
    return _call(p, platform, variant, p.blocks, a, b, *masks)


def has_boxes(a: Any, block: Any) -> bool:
    """Whether blocks of a are whole 32 rows and 128 bytes: TMA loads them as they lie, and only the
    index asks for the mask, which it takes as it is.
    """
    return block[0] % 32 == 0 and block[1] % (128 // a.dtype.itemsize) == 0


def sorts(dtype: Any, block: Any, right: Any, masks: Any) -> bool:
    """Whether columns of a can be sorted by the pieces of 32 rows that keep them: a mask on a
    alone, whose blocks are no boxes. `right` is the shape of b.
    """
    lists, depth, columns = right
    width = np.dtype(dtype).itemsize
    alone = masks[0] is not None and masks[1] is None and masks[2] is None
    pieces = block[0] % 32 == 0 and block[1] * width % 128 != 0
    return alone and pieces and columns * width % 128 == 0 and lists * depth < 2**31


def transposes(platform: str, masks: Any) -> bool:
    """Whether the transposed product runs: the CUDA kernels condense what a mask on the left
    operand leaves.
    """
    return platform == "cuda" and masks[0] is None and masks[1] is not None


def _swap(value: Any) -> Any:
    return None if value is None else jnp.swapaxes(value, 1, 2)


def _call(p: Any, platform: str, variant: str, blocks: Any, a: Any, b: Any, *masks: Any):
    operands = (a, b, *masks)
    shape = (max(v.shape[0] for v in operands if v is not None), a.shape[1], b.shape[2])
    if any(v is not None and v.shape[0] == 0 for v in operands):
        shape = (0, *shape[1:])
    sorted_columns = variant in ("auto", SORTED) and sorts(a.dtype, blocks[0], b.shape, masks)
    bools = platform == "cuda" and masks[1] is None and variant != "direct"
    bools = bools and (sorted_columns or has_boxes(a, blocks[0]))
    words = [
        jnp.zeros((0, 0, 0), jnp.uint32) if m is None else m if i == 0 and bools else pack_mask(m)
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


def _workspace(platform: str, variant: str, blocks: Any, shape: Any, a: Any, b: Any, masks: Any):
    if platform == "cpu":
        return cpu_scratch(a.shape[2], masks[1] is not None)
    if variant == "direct":
        return 0
    lists = [0 if m is None else m.shape[0] for m in masks]
    sizes, dtype = (*shape, a.shape[2], a.shape[0], b.shape[0]), DTYPES[a.dtype.name]
    if variant == SAMPLED:
        return native("cuda").sampled_matmul_workspace(sizes, lists[2], blocks[2], dtype)
    turned = variant == TURNED
    return native("cuda").masked_matmul_workspace(sizes, lists, blocks[0], dtype, turned)


def variants(p: Any, platform: str, a: Any, b: Any, masks: Any) -> list[str]:
    """The variants whose handler takes this problem."""
    names = table("masked_matmul", platform)
    return [n for n in names if reason_against(p, platform, n, a, b, masks) is None]


def reason_against(p: Any, platform: str, variant: str, a: Any, b: Any, masks: Any) -> str | None:
    """Why `variant` does not take this problem, or None. The handlers refuse by the same rules."""
    if platform == "cpu" or variant == "direct":
        return None
    lists = max([1, *(v.shape[0] for v in (a, b, *masks) if v is not None)])
    m, k, n = a.shape[1], a.shape[2], b.shape[2]
    if transposes(platform, masks):
        m, n = n, m
    vector = 16 // a.dtype.itemsize
    if a.dtype == np.float32 and p.precision == "highest":
        return "float32 products are asked for, not TF32"
    left = masks[1 if transposes(platform, masks) else 0]
    if variant in ("pieces", "panels", TURNED):
        if left is None or masks[2] is not None:
            return "tiles of pieces need a mask on an operand and none on the result"
        block = p.blocks[1][::-1] if transposes(platform, masks) else p.blocks[0]
        if not has_boxes(a, block):
            return "tiles of pieces need blocks of whole 32 rows and 128 bytes of K"
    if variant == SORTED:
        flips = transposes(platform, masks)
        block = p.blocks[1][::-1] if flips else p.blocks[0]
        right = (a.shape[0], k, n) if flips else b.shape
        given = (masks[1], masks[0], masks[2]) if flips else masks
        if not sorts(a.dtype, block, right, given):
            return (
                "sorted columns need a mask on one operand and no other, of whole 32 rows but not "
                "of whole 128 bytes of K, and rows of whole 128 bytes in the other operand"
            )
    if variant == TURNED and (masks[0] is None or m % vector or lists * m * k >= 2**33):
        return "turned pieces need a mask on a, columns of 16 bytes, and at most 2^33 entries"
    if variant == SAMPLED:
        if masks[2] is None or masks[0] is not None or masks[1] is not None:
            return "sampled products need a mask on the result, and none on an operand"
        if max(m, n) > 2**20 or max(lists, k // vector) * n >= 2**31:
            return "a side of the result passes 2^20, or b 2^31 rows or pieces of 16 bytes"
    if not is_hopper():
        return "the device is not of compute capability 9.0"
    if k == 0 or k % vector or n % vector:
        return f"K = {k} and {n} columns: both must be multiples of {vector}"
    if lists * m >= 2**31 or k > 2**19 or n >= 2**30 or lists * -(-m // 128) > 65535:
        return "more than 2^31 rows, 2^19 columns of a, or 65535 tiles of rows"
    if left is not None and -(-left.shape[1 if transposes(platform, masks) else 2] // 32) > 8192:
        return "a row of a's mask passes 8192 words"
    return None


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
