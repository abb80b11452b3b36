"""sparse_attention on a mesh: heads of q with those of k that they read; the rest says why not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from ops.op_sharding import DEVICES, GATHERS
from ops.op_spec import assert_close
from ops.sparse_attention.oracle import attention, dense_of, lists_of, mask_of

import jaxsparse as js

pytestmark = pytest.mark.skipif(len(jax.devices()) < DEVICES, reason="needs four devices")
HEADS, T, BLOCK = 8, 64, (16, 32)


def mesh_of(kind):
    return jax.make_mesh((DEVICES,), ("heads",), (kind,), devices=jax.devices()[:DEVICES])


def drawn(rng, kv_heads, mask_heads):
    q, k, v = (rng.standard_normal((2, T, h, 8), np.float32) for h in (HEADS, kv_heads, kv_heads))
    grid = (1, mask_heads, T // BLOCK[0], T // BLOCK[1])
    codes = np.where(rng.random(grid) < 0.6, rng.integers(-1, 2, grid), -2)
    words = rng.integers(0, 2**32, (2, BLOCK[0], 1), np.uint32)
    return (q, k, v), lists_of(codes), words


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=["auto", "explicit"])
@pytest.mark.parametrize("kv_heads", [4, 8])
@pytest.mark.parametrize("mask_heads", [1, HEADS])
def test_heads_are_split(kind, kv_heads, mask_heads, rng):
    mesh = mesh_of(kind)
    arrays, lists, words = drawn(rng, kv_heads, mask_heads)
    slopes = rng.random(HEADS, np.float32) / np.float32(8)
    by = P(None, None, "heads")
    put = [jax.device_put(x, NamedSharding(mesh, by)) for x in arrays]
    along = P(None, "heads") if mask_heads > 1 else P()
    split = tuple(jax.device_put(x, NamedSharding(mesh, along)) for x in lists)
    given = put, split, jax.device_put(slopes, NamedSharding(mesh, P("heads")))

    def loss(arrays, lists, slopes):
        mask = mask_of(lists, jnp.asarray(words), BLOCK, T, T)
        out, lse = js.sparse_attention(*arrays, mask, slopes=slopes, return_lse=True)
        lse = jnp.where(jnp.isfinite(lse), lse, jnp.zeros_like(lse))
        return jnp.sin(out).sum() + lse.sum(), out

    run = jax.jit(jax.grad(loss, has_aux=True)).lower(*given).compile()
    assert not [name for name in GATHERS if name in run.as_text()]
    found, out = run(*given)
    keep = dense_of(lists, words, BLOCK, T, T)
    exact = [x.astype(np.float64) for x in arrays]
    want, _ = attention(*exact, keep, scale=8**-0.5, slopes=slopes.astype(np.float64))
    assert_close(out, want, "float32", 2)
    alone = jax.jit(jax.grad(loss, has_aux=True))(arrays, lists, slopes)[0]
    for one, other in zip(found, alone, strict=True):
        assert_close(one, other, "float32", 4)


def test_fewer_heads_of_keys_than_shards_are_refused_with_a_reason(rng):
    mesh = mesh_of(AxisType.Explicit)
    (q, k, v), lists, words = drawn(rng, 2, 1)
    mask = mask_of(lists, words, BLOCK, T, T)
    split = jax.device_put(q, NamedSharding(mesh, P(None, None, "heads")))
    with jax.set_mesh(mesh), pytest.raises(ValueError, match="4 shards do not divide 2"):
        js.sparse_attention(split, k, v, mask)


def test_queries_that_are_split_are_refused_with_what_to_do(rng):
    mesh = mesh_of(AxisType.Explicit)
    (q, k, v), lists, words = drawn(rng, 8, 1)
    mask = mask_of(lists, words, BLOCK, T, T)
    split = jax.device_put(q, NamedSharding(mesh, P(None, "heads")))
    with jax.set_mesh(mesh), pytest.raises(ValueError, match=r"q axis 1 .* js\.ring_attention"):
        js.sparse_attention(split, k, v, mask)
