"""ring_attention in the op suite: a sequence over two devices, masks per batch and head with
partial blocks, soft cap, ALiBi and bias. On four devices, with masks as users make them:
test_ring.py.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from ops.op_suite import OpSpec, OpSuite
from ops.sparse_attention.oracle import attention, dense_of, lists_of

import jaxsparse as js

DEVICES = 2
BATCH, T, S, HEADS, KV_HEADS, H, HV = 2, 64, 96, 4, 2, 8, 12
BLOCK, SLOTS = (32, 16), 5
OPTIONS = {"scale": 0.5, "soft_cap": 3.0}
FLOATS = ("q", "k", "v")
pytestmark = pytest.mark.skipif(jax.device_count() < DEVICES, reason="needs two devices")


def draw(rng, fill):
    grid = (BATCH, HEADS, T // BLOCK[0], S // BLOCK[1])
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


def want(operands):
    arrays = {name: operands[name] for name in (*FLOATS, "slopes", "bias")}
    given = {k: np.asarray(v, np.float64) for k, v in arrays.items()}
    out, lse = attention(**given, keep=kept(operands), **OPTIONS)
    return out, np.where(np.isfinite(lse), lse, 0)


def split(local, in_specs, out_specs):
    devices = jax.devices()[:DEVICES]
    mesh = jax.make_mesh((DEVICES,), ("seq",), (AxisType.Auto,), devices=devices)
    return jax.shard_map(local, mesh=mesh, in_specs=in_specs, out_specs=out_specs)


BY_TOKENS, BY_QUERIES = P(None, "seq"), P(None, None, "seq")


def apply(operands, implementation):
    def local(q, k, v, mask, slopes, bias):
        options = {"slopes": slopes, "bias": bias, "implementation": implementation, **OPTIONS}
        out, lse = js.ring_attention(q, k, v, mask, "seq", return_lse=True, **options)
        lse = jnp.where(jnp.isfinite(lse), lse, 0)
        return out, lse.astype(out.dtype)

    mask = js.BlockMask(*operands["lists"], operands["words"], operands["lost"], BLOCK, T, S)
    specs = (*[BY_TOKENS] * 3, P(), P(), BY_QUERIES)
    # Outside of jit each part would be compiled by itself.
    run = jax.jit(split(local, specs, (BY_TOKENS, BY_QUERIES)))
    return run(*(operands[n] for n in FLOATS), mask, operands["slopes"], operands["bias"])


def unread(operands):
    keep = np.broadcast_to(kept(operands), (BATCH, HEADS, T, S))
    keys = keep.reshape(BATCH, KV_HEADS, -1, S).any(2).swapaxes(1, 2)
    queries = keep.any(3).swapaxes(1, 2)
    free = {"q": ~queries, "k": ~keys, "v": ~keys}
    free = {n: np.broadcast_to(w[..., None], operands[n].shape) for n, w in free.items()}
    return {**free, "bias": ~keep.any(0, keepdims=True)}


def overflow(rng):
    operands = {**draw(rng, 0.5), "lost": np.ones((), bool)}
    return operands, want(operands), "ring_attention: block_mask.overflow is set"


def empty(rng):
    """A batch of nothing."""
    operands = draw(rng, 0.5)
    operands["lists"] = tuple(x[:0] for x in operands["lists"])
    return operands | {name: operands[name][:0] for name in FLOATS}


def tokens(length, heads, depth=8, batch=1):
    return np.ones((batch, length, heads, depth), np.float32)


Q, K, V = tokens(64, 4), tokens(96, 2), tokens(96, 2)
BITS = np.ones((1, 1, 4, 6), bool)
MASK = js.BlockMask.from_block_bits(BITS, 16, 64, 96)


def full(block, q_len, kv_len, batch=1, heads=1):
    grid = -(-q_len // block), -(-kv_len // block)
    return js.BlockMask.from_block_bits(np.ones((batch, heads, *grid), bool), block, q_len, kv_len)


def call(**changed):
    def local(q, k, v):
        given = {"q": q, "k": k, "v": v, "block_mask": MASK, "axis_name": "seq"}
        return js.ring_attention(**given | {n: x for n, x in changed.items() if n not in FLOATS})

    arrays = (changed.get(name, x) for name, x in (("q", Q), ("k", K), ("v", V)))
    return split(local, (BY_TOKENS,) * 3, BY_TOKENS)(*arrays)


BAD = {
    "q int": ({"q": Q.astype(int)}, TypeError, "q has dtype int32; it takes float32, bfloat16 or"),
    "k dtype": ({"k": K.astype(jnp.bfloat16)}, TypeError, "k has dtype bfloat16, q has float32"),
    "heads": (
        {"k": tokens(96, 3), "v": tokens(96, 3)},
        ValueError,
        "k has 3 heads, which do not divide the 4 heads of q",
    ),
    "v length": ({"v": V[:, :64]}, ValueError, r"v has shape .* needs \(1, 48, 2, 'depth'\)"),
    "keys of one device": (
        {"block_mask": full(16, 64, 48)},
        ValueError,
        r"k has 48 tokens .* 2 devices, 96 together; block_mask is of kv_len=48: .* all devices",
    ),
    "other queries": (
        {"block_mask": full(16, 96, 96)},
        ValueError,
        "q has 32 tokens .* block_mask is of q_len=96: .* this device's 32 queries, or for all 64",
    ),
    "blocks of keys": (
        {"block_mask": full(64, 64, 96)},
        ValueError,
        r"k has 48 tokens on each of 2 devices, .* multiple of block_kv=64 .* 2 \* 64 = 128",
    ),
    "blocks of queries": (
        {"block_mask": js.BlockMask.from_block_bits(np.ones((1, 1, 2, 6), bool), (48, 16), 64, 96)},
        ValueError,
        "q has 32 tokens on each of 2 devices, .* multiple of block_q=48",
    ),
    "mask heads": (
        {"block_mask": full(16, 64, 96, heads=2)},
        ValueError,
        "block_mask is for heads 2; q .* needs 4, or 1 for all",
    ),
    "mask none": ({"block_mask": None}, TypeError, "block_mask must be a js.BlockMask"),
    "axis number": ({"axis_name": 3}, TypeError, "axis_name=3; it takes a mesh axis's name"),
    "no such axis": (
        {"axis_name": "f"},
        ValueError,
        "ring_attention: axis_name='f' is not an axis of a .* splits the queries and keys",
    ),
    "dropout": ({"dropout": 0.1}, ValueError, "dropout=0.1 is not taken: .* drop out the result"),
    "scale type": ({"scale": "big"}, TypeError, "scale='big'; it takes a finite number, or None"),
    "soft_cap zero": ({"soft_cap": 0}, ValueError, "soft_cap=0; it takes a positive number"),
    "slopes": ({"slopes": np.ones(3, np.float32)}, ValueError, "slopes has 3 entries; q has 4"),
    "bias of one step": (
        {"bias": np.ones((1, 4, 32, 48), np.float32)},
        ValueError,
        r"bias has shape \(1, 4, 32, 48\); it takes \(1, 4, 32, 96\), or 1",
    ),
    "is_causal=": ({"is_causal": True}, TypeError, r"is_causal= .*js\.block_masks\.causal\(T"),
    "return_lse": ({"return_lse": 1}, TypeError, "return_lse must be a bool, not int"),
}
INSIDE = "it is called in a shard_map, as `apply` does it"


class TestRingAttention(OpSuite):
    spec = OpSpec(
        name="ring_attention",
        serves=(js.ring_attention,),
        draw=draw,
        apply=apply,
        oracle=want,
        floats=FLOATS,
        sharded=frozenset({"q", "k", "v", "lists"}),
        empty=empty,
        unread=unread,
        overflow=overflow,
        call=call,
        bad=BAD,
        scale=2.0,
        inapplicable={
            "shard_map": INSIDE,
            "split_by_a_mesh": INSIDE,
            "export": "what is exported for two devices is called on two",
        },
    )

    def test_overflow_is_flagged_and_written_nowhere(self, implementation, rng):
        super().test_overflow_is_flagged_and_written_nowhere(implementation, rng)
        with js.checked():  # and nothing is left of the error, on any device
            jax.block_until_ready(apply(draw(rng, 0.0), implementation))
