"""sparse_attention in the op suite: four heads that share two of keys, masks per batch and head
with partial blocks, soft cap, ALiBi and bias.
"""

import jax.numpy as jnp
import numpy as np
from ops.op_sharding import Split
from ops.op_suite import OpSpec, OpSuite
from ops.sparse_attention.oracle import attention, dense_of, lists_of

import jaxsparse as js

BATCH, T, S, HEADS, KV_HEADS, H, HV = 2, 40, 56, 4, 2, 8, 12
BLOCK, SLOTS = (32, 16), 5
OPTIONS = {"scale": 0.5, "soft_cap": 3.0}


def draw(rng, fill):
    grid = (BATCH, HEADS, -(-T // BLOCK[0]), -(-S // BLOCK[1]))
    state = rng.integers(-SLOTS, SLOTS, grid)  # half of the blocks are full
    codes = np.where(rng.random(grid) < fill, np.maximum(state, -1), -2)
    return {
        "q": rng.standard_normal((BATCH, T, HEADS, H), np.float32),
        "k": rng.standard_normal((BATCH, S, KV_HEADS, H), np.float32),
        "v": rng.standard_normal((BATCH, S, KV_HEADS, HV), np.float32),
        "lists": lists_of(codes),
        "words": rng.integers(0, 2**32, (SLOTS, BLOCK[0], 1), np.uint32),
        "slopes": rng.random(HEADS, np.float32) / np.float32(8),
        "bias": rng.standard_normal((1, HEADS, T, S), np.float32),
        "lost": np.zeros((), bool),
    }


def kept(operands):
    return dense_of(operands["lists"], operands["words"], BLOCK, T, S)


def arrays(operands):
    return {name: operands[name] for name in ("q", "k", "v", "slopes", "bias")}


def want(operands):
    given = {k: np.asarray(v, np.float64) for k, v in arrays(operands).items()}
    out, lse = attention(**given, keep=kept(operands), **OPTIONS)
    return out, np.where(np.isfinite(lse), lse, 0)


def apply(operands, implementation):
    mask = js.BlockMask(*operands["lists"], operands["words"], operands["lost"], BLOCK, T, S)
    out, lse = js.sparse_attention(
        block_mask=mask,
        return_lse=True,
        implementation=implementation,
        **arrays(operands),
        **OPTIONS,
    )
    lse = jnp.where(jnp.isfinite(lse), lse, 0)
    return out, lse.astype(out.dtype)


def unread(operands):
    keep = np.broadcast_to(kept(operands), (BATCH, HEADS, T, S))
    keys = keep.reshape(BATCH, KV_HEADS, -1, S).any(2).swapaxes(1, 2)
    queries = keep.any(3).swapaxes(1, 2)
    free = {"q": ~queries, "k": ~keys, "v": ~keys}
    free = {n: np.broadcast_to(w[..., None], operands[n].shape) for n, w in free.items()}
    return {**free, "bias": ~keep.any(0, keepdims=True)}


def overflow(rng):
    operands = {**draw(rng, 0.5), "lost": np.ones((), bool)}
    return operands, want(operands), "block_mask.overflow is set"


def tokens(length, heads, depth=8, batch=1):
    return np.ones((batch, length, heads, depth), np.float32)


Q, K, V = tokens(32, 4), tokens(48, 2), tokens(48, 2)
DENSE = np.ones((1, 1, 32, 48), bool)
MASK = js.BlockMask.from_block_bits(np.ones((1, 1, 2, 3), bool), 16, 32, 48)


def call(**changed):
    return js.sparse_attention(**{"q": Q, "k": K, "v": V, "block_mask": MASK, **changed})


def lists_with(**changed):
    """MASK with other arrays."""
    names = ("kv_counts", "kv_blocks", "kv_slots", "q_counts", "q_blocks", "q_slots", "words")
    arrays = {name: np.asarray(getattr(MASK, name)) for name in names} | changed
    return js.BlockMask(
        **arrays, overflow=np.bool_(False), block_size=(16, 16), q_len=32, kv_len=48
    )


BAD = {
    "q list": ({"q": [1.0]}, TypeError, "q must be an array, not list"),
    "q rank": ({"q": Q[0]}, ValueError, r"q has shape \(32, 4, 8\); it needs 4 axes, BTNH"),
    "q int": ({"q": Q.astype(int)}, TypeError, "q has dtype int32; it takes float32, bfloat16 or"),
    "k dtype": (
        {"k": jnp.asarray(K, jnp.bfloat16)},
        TypeError,
        "k has dtype bfloat16, q has float32: they must be equal",
    ),
    "q layout": (
        {"q": Q.swapaxes(1, 2)},
        ValueError,
        r"q has 4 tokens .* BTNH .* q_len=32; is q BNTH\? q.transpose\(0, 2, 1, 3\)",
    ),
    "k length": ({"k": K[:, :40]}, ValueError, r"k has 40 tokens .*block_mask is of kv_len=48"),
    "k depth": (
        {"k": tokens(48, 2, 16)},
        ValueError,
        r"k has shape .*; q .* needs \(1, keys, heads",
    ),
    "k batch": ({"k": tokens(48, 2, batch=2)}, ValueError, r"k has shape \(2, 48, 2, 8\)"),
    "v length": ({"v": V[:, :40]}, ValueError, r"v has shape .* needs \(1, 48, 2, 'depth'\)"),
    "heads": (
        {"k": tokens(48, 3), "v": tokens(48, 3)},
        ValueError,
        "k has 3 heads, which do not divide the 4 heads of q",
    ),
    "mask bool": (
        {"block_mask": DENSE},
        TypeError,
        r"block_mask must be a js.BlockMask, not bool array .*js.BlockMask.from_dense\(mask",
    ),
    "mask none": ({"block_mask": None}, TypeError, "block_mask .* jax.nn.dot_product_attention"),
    "mask function": (
        {"block_mask": lambda b, h, q, k: q >= k},
        TypeError,
        "block_mask must be a js.BlockMask, not function: js.create_block_mask",
    ),
    "mask list": ({"block_mask": [DENSE]}, TypeError, "block_mask must .* not list"),
    "mask heads": (
        {"block_mask": js.BlockMask.from_block_bits(np.ones((1, 2, 2, 3), bool), 16, 32, 48)},
        ValueError,
        "block_mask is for heads 2; q .* needs 4, or 1 for all",
    ),
    "mask batch": (
        {"block_mask": js.BlockMask.from_block_bits(np.ones((3, 1, 2, 3), bool), 16, 32, 48)},
        ValueError,
        "block_mask is for batch 3; q .* needs 1, or 1 for all",
    ),
    "mask lists": (
        {"block_mask": lists_with(kv_blocks=np.zeros((1, 1, 2, 4), np.int32))},
        ValueError,
        r"block_mask.kv_blocks has shape \(1, 1, 2, 4\); .* need \(1, 1, 2, 3\)",
    ),
    "mask dtype": (
        {"block_mask": lists_with(q_counts=np.zeros((1, 1, 3), np.float32))},
        TypeError,
        "block_mask.q_counts has dtype float32; it takes int32",
    ),
    "mask words": (
        {"block_mask": lists_with(words=np.zeros((0, 16, 1), np.uint32))},
        ValueError,
        r"block_mask.words has shape \(0, 16, 1\); .* need \(1, 16, 1\)",
    ),
    "dropout": ({"dropout": 0.1}, ValueError, "dropout=0.1 is not taken: .* drop out the result"),
    "scale type": ({"scale": "big"}, TypeError, "scale='big'; it takes a finite number, or None"),
    "scale nan": ({"scale": float("nan")}, ValueError, "scale=nan; it takes a finite number"),
    "soft_cap zero": ({"soft_cap": 0}, ValueError, "soft_cap=0; it takes a positive number"),
    "slopes": ({"slopes": np.ones(3, np.float32)}, ValueError, "slopes has 3 entries; q has 4"),
    "bias bool": (
        {"bias": DENSE},
        TypeError,
        "bias is bool; what is left out is for block_mask: js.BlockMask.from_dense",
    ),
    "bias rank": ({"bias": Q[0]}, ValueError, r"bias has shape .* 4 axes, \[B or 1, N or 1"),
    "bias shape": (
        {"bias": np.ones((1, 4, 32, 47), np.float32)},
        ValueError,
        r"bias has shape \(1, 4, 32, 47\); it takes \(1, 4, 32, 48\), or 1",
    ),
    "bias dtype": (
        {"bias": np.ones((1, 1, 1, 1), np.float16)},
        TypeError,
        "bias has dtype float16",
    ),
    "precision": ({"precision": "enormous"}, ValueError, "precision='enormous'; it takes None"),
    "mask=": ({"mask": DENSE}, TypeError, "mask= is not an argument; .*=js.BlockMask.from_dense"),
    "is_causal=": ({"is_causal": True}, TypeError, r"is_causal= .*js\.block_masks\.causal\(T"),
    "dropout_rate=": ({"dropout_rate": 0.1}, TypeError, "dropout_rate= .* drop out the result"),
    "return_lse": ({"return_lse": 1}, TypeError, "return_lse must be a bool, not int"),
}


class TestSparseAttention(OpSuite):
    spec = OpSpec(
        name="sparse_attention",
        serves=(js.sparse_attention,),
        draw=draw,
        apply=apply,
        oracle=want,
        floats=("q", "k", "v"),
        sharded=frozenset({"q", "k", "v", "lists"}),
        split=Split({"q": 0, "k": 0, "v": 0, "lists": 0}, results=(0, 0)),
        empty=lambda rng: {
            k: tuple(x[:0] for x in v) if k == "lists" else v[:0] if k in "qkv" else v
            for k, v in draw(rng, 0.5).items()
        },
        unread=unread,
        overflow=overflow,
        call=call,
        bad=BAD,
    )
