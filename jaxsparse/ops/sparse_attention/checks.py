"""What `sparse_attention` refuses, at trace time; `ring_attention` refuses the same."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxsparse.core.checks import (
    as_array,
    canonical_precision,
    check_float,
    check_offsets,
    check_rank,
    check_same_dtype,
)
from jaxsparse.core.integers import check_static
from jaxsparse.ffi import Implementation
from jaxsparse.ffi.faults import raise_on_host
from jaxsparse.ffi.platform import implementation_key
from jaxsparse.index.blocks import BlockMask
from jaxsparse.index.blocks.checks import check_kind
from jaxsparse.index.blocks.grid import check_block_size
from jaxsparse.index.blocks.lists import MaskArrays
from jaxsparse.ops.sparse_attention.params import AttentionParams
from jaxsparse.select.config import settings

LAYOUT = "BTNH [batch, tokens, heads, head_dim]"


def check_options(
    q: jax.Array,
    mask: BlockMask,
    scale: Any,
    soft_cap: Any,
    precision: Any,
    implementation: Implementation,
) -> AttentionParams:
    """What is static about a call."""
    default = 1 / math.sqrt(max(q.shape[3], 1))
    return AttentionParams(
        mask.block_size,
        default if scale is None else check_number("scale", scale),
        0.0 if soft_cap is None else check_number("soft_cap", soft_cap, positive=True),
        canonical_precision(precision),
        implementation_key(implementation),
    )


def check_tokens(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    check_lengths: Callable[[jax.Array, jax.Array], None],
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """q, k and v as arrays that fit each other; `check_lengths(q, k)` compares them to the mask."""
    for name, value in (("q", q), ("k", k), ("v", v)):
        check_rank(name, value, 4, LAYOUT)
    q, k, v = as_array("q", q), as_array("k", k), as_array("v", v)
    check_float("q", q)
    check_same_dtype("k", k, "q", q)
    check_same_dtype("v", v, "q", q)
    check_lengths(q, k)
    if k.shape[0] != q.shape[0] or k.shape[3] != q.shape[3]:
        raise ValueError(
            f"k has shape {k.shape}; q {q.shape} needs ({q.shape[0]}, keys, heads, {q.shape[3]})"
        )
    if v.shape[:3] != k.shape[:3]:
        raise ValueError(f"v has shape {v.shape}; k {k.shape} needs {(*k.shape[:3], 'depth')}")
    heads, kv_heads = q.shape[2], k.shape[2]
    if heads and (not kv_heads or heads % kv_heads):
        raise ValueError(
            f"k has {kv_heads} heads, which do not divide the {heads} heads of q: each head of k "
            "and v serves as many heads of q"
        )
    for name, shape in (("q", q.shape), ("k", k.shape), ("v", v.shape)):
        check_offsets(name, shape)
    return q, k, v


def check_lengths(mask: BlockMask, q: jax.Array, k: jax.Array) -> None:
    """The mask is of the queries of q and the keys of k."""
    for name, array, length in (("q", q, mask.q_len), ("k", k, mask.kv_len)):
        if array.shape[1] == length:
            continue
        turned = array.shape[2] == length
        fix = f"; is {name} BNTH? {name}.transpose(0, 2, 1, 3)" if turned else ""
        side = "q_len" if name == "q" else "kv_len"
        raise ValueError(
            f"{name} has {array.shape[1]} tokens (shape {array.shape}, {LAYOUT}); block_mask is "
            f"of {side}={length}{fix}"
        )


def check_mask(block_mask: object) -> BlockMask:
    """`block_mask` is one BlockMask whose lists fit its sizes."""
    if isinstance(block_mask, BlockMask):
        check_kind("block_mask", block_mask)
        _check_lists(block_mask)
        return block_mask
    kind = type(block_mask).__name__
    if block_mask is None:
        fix = "without a mask jax.nn.dot_product_attention is as fast"
    elif isinstance(block_mask, (jax.Array, np.ndarray)):
        kind = f"{np.dtype(block_mask.dtype).name} array of shape {tuple(block_mask.shape)}"
        fix = (
            "js.BlockMask.from_dense(mask, block_size) makes one of bool[B or 1, N or 1, T, S], "
            "js.BlockMask.from_block_bits of whole blocks"
        )
    elif callable(block_mask):
        fix = "js.create_block_mask(mask_mod, batch, heads, q_len, kv_len, block_size) makes one"
    else:
        fix = "js.create_block_mask and js.BlockMask.from_dense make one"
    raise TypeError(f"block_mask must be a js.BlockMask, not {kind}: {fix}")


def _check_lists(mask: BlockMask) -> None:
    block_q, block_kv = check_block_size(mask.block_size)
    rows, columns = -(-mask.q_len // block_q), -(-mask.kv_len // block_kv)
    lead = tuple(mask.kv_counts.shape[:2])
    wanted = {
        "kv_counts": (*lead, rows),
        "kv_blocks": (*lead, rows, columns),
        "kv_slots": (*lead, rows, columns),
        "q_counts": (*lead, columns),
        "q_blocks": (*lead, columns, rows),
        "q_slots": (*lead, columns, rows),
        "words": (max(mask.words.shape[0], 1), block_q, -(-block_kv // 32)),
        "overflow": (),
    }
    for name in MaskArrays._fields:
        value = getattr(mask, name)
        dtype = {"words": np.uint32, "overflow": np.bool_}.get(name, np.int32)
        if tuple(value.shape) != wanted[name]:
            raise ValueError(
                f"block_mask.{name} has shape {tuple(value.shape)}; {mask.q_len} queries and "
                f"{mask.kv_len} keys in blocks of {block_q} x {block_kv} need {wanted[name]}"
            )
        if value.dtype != dtype:
            need = np.dtype(dtype).name
            raise TypeError(f"block_mask.{name} has dtype {value.dtype}; it takes {need}")


def check_shared(q: jax.Array, mask: BlockMask) -> None:
    """The mask is of q's batch and heads, or of one for all."""
    for axis, place, what in ((0, 0, "batch"), (1, 2, "heads")):
        found, wanted = mask.kv_counts.shape[axis], q.shape[place]
        if found not in (1, wanted):
            raise ValueError(
                f"block_mask is for {what} {found}; q {q.shape} needs {wanted}, or 1 for all"
            )


def check_number(name: str, value: Any, *, positive: bool = False) -> float:
    """A static finite number."""
    check_static(name, value)
    takes = "a positive number" if positive else "a finite number"
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name}={value!r}; it takes {takes}, or None") from None
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name}={value!r}; it takes {takes}, or None")
    if not math.isfinite(float(np.float32(number))) or (positive and not np.float32(number) > 0):
        raise ValueError(f"{name}={value!r}; it takes {takes}, or None")
    return number


def check_dropout(dropout: object) -> None:
    """There is none; a rate of 0 is what other attentions call that."""
    if dropout is not None and dropout != 0:
        raise ValueError(
            f"dropout={dropout!r} is not taken: the kernels keep no random state, and a dropped "
            "probability would have to be drawn again for the gradient; drop out the result instead"
        )


def check_slopes(op: str, slopes: ArrayLike, heads: int) -> jax.Array:
    """`slopes` as float32[heads] without a derivative."""
    check_rank("slopes", slopes, 1, "one per head of q")
    slopes = as_array("slopes", slopes)
    check_float("slopes", slopes)
    if slopes.shape[0] != heads:
        raise ValueError(f"slopes has {slopes.shape[0]} entries; q has {heads} heads")
    return without_gradient(op, "slopes", slopes.astype(jnp.float32))


def check_bias(op: str, bias: ArrayLike, q: jax.Array, kv_len: int) -> jax.Array:
    """`bias` as an array that broadcasts to [B, N, T, S], without a derivative."""
    check_rank("bias", bias, 4, "[B or 1, N or 1, T or 1, S or 1]")
    bias = as_array("bias", bias)
    if bias.dtype == np.bool_:
        raise TypeError("bias is bool; what is left out is for block_mask: js.BlockMask.from_dense")
    if bias.dtype not in (q.dtype, np.dtype(np.float32)):
        takes = " or ".join(dict.fromkeys((q.dtype.name, "float32")))
        raise TypeError(f"bias has dtype {bias.dtype}; it takes {takes}")
    whole = q.shape[0], q.shape[2], q.shape[1], kv_len
    if any(n not in (1, size) for n, size in zip(bias.shape, whole, strict=True)):
        raise ValueError(f"bias has shape {bias.shape}; it takes {whole}, or 1 for an axis of it")
    check_offsets("bias", bias.shape)
    return without_gradient(op, "bias", bias)


def without_gradient(op: str, name: str, value: jax.Array) -> jax.Array:
    """`value`; asking for its derivative is refused with a sentence, and is not zero."""

    @jax.custom_jvp
    def same(value: jax.Array) -> jax.Array:
        return value

    @same.defjvp
    def refuse(primals: object, tangents: object) -> tuple[jax.Array, jax.Array]:
        raise ValueError(
            f"{name} has no derivative in {op}: jax.lax.stop_gradient({name}), or "
            "jax.nn.dot_product_attention where it is trained"
        )

    return same(value)


def check_complete(block_mask: BlockMask) -> None:
    """Under `js.checked()`: raise for a mask of which some was left out."""
    if settings().checked:
        raise_on_host(functools.partial(raise_if, "sparse_attention"), block_mask.overflow)


def raise_if(op: str, overflow: np.ndarray) -> None:
    """Raise where `overflow` bool[] of a mask is set."""
    if overflow:
        raise ValueError(
            f"{op}: block_mask.overflow is set: it has more partial blocks than slots, or entries "
            "out of range, and those attend to nothing"
        )
