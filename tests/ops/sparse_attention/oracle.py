"""Attention under a mask in numpy, float64, and masks of blocks made from codes. It shares no code
with the package.
"""

import numpy as np

import jaxsparse as js


def lists_of(codes):
    """kv_counts, kv_blocks, kv_slots, then the same of columns, of int[b, h, Q, C]: -2 is not
    listed, -1 full, and else a slot.
    """
    found = []
    for one in (codes, codes.swapaxes(2, 3)):
        order = np.argsort(one == -2, axis=-1, kind="stable")
        slots = np.take_along_axis(one, order, -1)
        counts = (one != -2).sum(-1)
        found += [counts, order, slots]
    return tuple(v.astype(np.int32) for v in found)


def mask_of(lists, words, block, q_len, kv_len, lost=False):
    """A `js.BlockMask` of such lists."""
    return js.BlockMask(*lists, words, np.bool_(lost), block, q_len, kv_len)


def dense_of(lists, words, block, q_len, kv_len):
    """bool[b, h, q_len, kv_len] of the first three lists."""
    counts, blocks, slots = (np.asarray(v) for v in lists[:3])
    b, h, rows, columns = blocks.shape
    keep = np.zeros((b, h, rows * block[0], columns * block[1]), bool)
    bits = np.unpackbits(np.asarray(words).view(np.uint8), axis=-1, bitorder="little")
    bits = bits[..., : block[1]].astype(bool)
    for i, j, row in np.ndindex(b, h, rows):
        for at in range(min(max(counts[i, j, row], 0), columns)):
            block_at, slot = blocks[i, j, row, at], slots[i, j, row, at]
            if not 0 <= block_at < columns or not -1 <= slot < len(words):
                continue
            place = keep[
                i,
                j,
                row * block[0] : (row + 1) * block[0],
                block_at * block[1] : (block_at + 1) * block[1],
            ]
            place[...] = True if slot == -1 else bits[slot]
    return keep[:, :, :q_len, :kv_len]


def attention(q, k, v, keep, *, scale, soft_cap=None, slopes=None, bias=None):
    """out[B, T, N, Hv], and the log-sum-exp [B, N, T], -inf where nothing is kept."""
    batch, q_len, heads, _ = q.shape
    kv_len, group = k.shape[1], heads // k.shape[2]
    keep = np.broadcast_to(keep, (batch, heads, q_len, kv_len))
    k, v = np.repeat(k, group, 2), np.repeat(v, group, 2)
    k = np.where(keep.any(2).swapaxes(1, 2)[..., None], k, 0)
    v = np.where(keep.any(2).swapaxes(1, 2)[..., None], v, 0)
    q = np.where(keep.any(3).swapaxes(1, 2)[..., None], q, 0)
    s = scale * np.einsum("btnh,bsnh->bnts", q, k)
    if soft_cap is not None:
        s = soft_cap * np.tanh(s / soft_cap)
    if slopes is not None:
        s = s + slopes[:, None, None] * (np.arange(kv_len) - np.arange(q_len)[:, None])
    if bias is not None:
        s = s + np.where(keep, bias, 0)
    top = np.where(keep, s, -np.inf).max(-1, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0)
    e = np.where(keep, np.exp(np.where(keep, s - top, 0)), 0)
    total = e.sum(-1, keepdims=True)
    p = e / np.where(total > 0, total, 1)
    with np.errstate(divide="ignore"):
        lse = top[..., 0] + np.log(total[..., 0])
    return np.einsum("bnts,bsnh->btnh", p, v), lse


def gradients(q, k, v, gout, glse, keep, *, scale):
    """dq, dk and dv of `attention`'s (out, lse) at (gout, glse); `glse` counts where a query
    attends.
    """
    batch, q_len, heads, _ = q.shape
    kv_len, kv_heads = k.shape[1:3]
    group = heads // kv_heads
    keep = np.broadcast_to(keep, (batch, heads, q_len, kv_len))
    some = keep.any(3).swapaxes(1, 2)[..., None]
    read = keep.any(2).swapaxes(1, 2)[..., None]
    q, gout = np.where(some, q, 0), np.where(some, gout, 0)
    wide_k, wide_v = (np.where(read, np.repeat(x, group, 2), 0) for x in (k, v))
    out, lse = attention(q, k, v, keep, scale=scale)
    s = scale * np.einsum("btnh,bsnh->bnts", q, wide_k)
    offset = np.where(np.isfinite(lse), lse, 0)[..., None]
    p = np.where(keep, np.exp(np.where(keep, s - offset, 0)), 0)
    delta = np.einsum("btnh,btnh->bnt", gout, out) - np.where(np.isfinite(lse), glse, 0)
    ds = p * (np.einsum("btnh,bsnh->bnts", gout, wide_v) - delta[..., None])
    dq = scale * np.einsum("bnts,bsnh->btnh", ds, wide_k)
    dk = scale * np.einsum("bnts,btnh->bsnh", ds, q)
    dv = np.einsum("bnts,btnh->bsnh", p, gout)
    dk, dv = (x.reshape(batch, kv_len, kv_heads, group, -1).sum(3) for x in (dk, dv))
    return dq, dk, dv
