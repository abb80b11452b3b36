"""Ops under shard_map over two real GPUs: equal to one, and nothing gathered.

Skipped where there are not two. There: `pytest tests/test_two_gpus.py`.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import jaxsparse as js

GPUS = [device for device in jax.devices() if device.platform == "gpu"]
pytestmark = pytest.mark.skipif(len(GPUS) < 2, reason="needs two GPUs")
TOLERANCE = {"float32": 1e-5, "bfloat16": 2e-2}


def assert_equal_on_two(function, split, shared, tolerance=0.0):
    """`function(*split, *shared)` gives the same on one GPU and with the leading axes of `split`
    over two; each device holds its part, and nothing is gathered."""
    mesh = jax.make_mesh((2,), ("data",), (jax.sharding.AxisType.Auto,), devices=GPUS[:2])
    specs = (*[P("data")] * len(split), *[P()] * len(shared))
    one = [jax.tree.map(lambda v: jax.device_put(v, GPUS[0]), v) for v in (*split, *shared)]
    two = [
        jax.tree.map(lambda v, spec=spec: jax.device_put(v, NamedSharding(mesh, spec)), value)
        for value, spec in zip((*split, *shared), specs, strict=True)
    ]
    over = jax.jit(jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=P("data")))
    want = jax.jit(function)(*one)
    for _ in range(4):  # command buffers come in from the second run on
        got = over(*two)
        assert {s.device for s in got.addressable_shards} == set(GPUS[:2])
        np.testing.assert_allclose(
            np.asarray(got, np.float32), np.asarray(want, np.float32), atol=tolerance, rtol=0
        )
    assert "all-gather" not in over.lower(*two).compile().as_text()


def layers_of(rng, widths, **options):
    for n_in, n_out in itertools.pairwise(widths):
        weight = sp.random(n_out, n_in, 0.2, random_state=rng, format="csr", dtype=np.float32)
        yield js.bounded.inspect(weight.T, rng.standard_normal(n_out), 1.0, **options)


@pytest.mark.parametrize("widths", [(33, 50, 17, 40), (64, 7600, 40)])
def test_bounded_network(rng, widths):
    net = js.bounded.network(layers_of(rng, widths))
    x = jnp.asarray(rng.random((2 * 177, widths[0]), np.float32))
    assert_equal_on_two(lambda x, net: net(x).materialize(), [x], [net], 1e-6)


@pytest.mark.parametrize("fold", [True, False])
def test_challenge_network(rng, fold):
    net = js.bounded.network(js.bounded.radixnet(512, 20, fold=fold), fold=fold)
    shape = (2 * 17408, 512)
    x = jnp.asarray((rng.random(shape) < rng.uniform(0, 0.6, (shape[0], 1))).astype(np.float32))
    assert_equal_on_two(lambda x, net: net(x).materialize(), [x], [net], 1e-3)


@pytest.mark.parametrize("dataflow", ["row", "slab", "column"])
def test_bounded_matmul(rng, dataflow):
    first, second = layers_of(rng, (100, 333, 70))
    x = jnp.asarray(rng.random((2 * 65, 100), np.float32))

    def run(x, first, second):
        acts = js.bounded_matmul(x, first, dataflow=dataflow)
        return js.bounded_matmul(acts, second, dataflow=dataflow).materialize()

    assert_equal_on_two(run, [x], [first, second], 1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("recorded", [False, True])
def test_masked_conv(rng, dtype, recorded):
    x = jnp.asarray(rng.random((4, 24, 20, 64)), dtype)
    kernel = jnp.asarray(rng.standard_normal((3, 3, 64, 64)) / 24, dtype)
    mask = jnp.asarray(rng.random((4, 24, 20)) < 0.3)

    def run(x, mask, kernel):
        options = {"activation": "relu6", "precision": "highest"}
        if not recorded:
            return js.masked_conv(x, kernel, mask, **options)
        y, recorder = js.masked_conv(x, kernel, mask, record=True, **options)
        return js.masked_conv(y, kernel, mask, recorder=recorder, **options)

    assert_equal_on_two(run, [x, mask], [kernel], TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_masked_conv_gradients(rng, dtype):
    x = jnp.asarray(rng.random((4, 24, 20, 64)), dtype)
    kernel = jnp.asarray(rng.standard_normal((3, 3, 64, 64)) / 24, dtype)
    mask = jnp.asarray(rng.random((4, 24, 20)) < 0.3)

    def run(x, mask, kernel):
        return jax.grad(
            lambda x: js.masked_conv(x, kernel, mask, precision="highest").sum(dtype="float32")
        )(x)

    assert_equal_on_two(run, [x, mask], [kernel], TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_grouped_matmul(rng, dtype):
    # Each device has a batch of its own, sorted into all groups.
    lhs = jnp.asarray(rng.standard_normal((2, 200, 64)), dtype)
    rhs = jnp.asarray(rng.standard_normal((5, 64, 128)) / 8, dtype)
    sizes = jnp.asarray([[40, 0, 90, 60, 10], [1, 100, 0, 9, 90]], jnp.int32)

    def run(lhs, sizes, rhs):
        each = [js.grouped_matmul(a, rhs, s) for a, s in zip(lhs, sizes, strict=True)]
        return jnp.stack(each)

    assert_equal_on_two(run, [lhs, sizes], [rhs], TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_masked_matmul(rng, dtype):
    a = jnp.asarray(rng.standard_normal((4, 128, 96)), dtype)
    b = jnp.asarray(rng.standard_normal((96, 160)) / 10, dtype)
    mask = jnp.asarray(rng.random((4, 4, 3)) < 0.4)

    def run(a, mask, b):
        return js.masked_matmul(a, b, a_mask=mask, granularity=(32, 32))

    assert_equal_on_two(run, [a, mask], [b], TOLERANCE[dtype])


@pytest.mark.parametrize("sparsity", [0.8, 0.95])
def test_pruned_matmul(rng, sparsity):
    weight = rng.standard_normal((256, 192)).astype(np.float32) / 16
    pruned = js.pruned.inspect(np.where(js.prune.magnitude(weight, sparsity), weight, 0))
    x = jnp.asarray(rng.standard_normal((2 * 48, 256)), jnp.float32)
    run = lambda x, pruned: js.pruned_matmul(x, pruned, precision="highest")  # noqa: E731
    assert_equal_on_two(run, [x], [pruned], TOLERANCE["float32"])


@pytest.mark.parametrize(("dtype", "depth"), [("bfloat16", 128), ("bfloat16", 64), ("float32", 32)])
@pytest.mark.parametrize("balanced", [False, True])
def test_ring_attention(rng, dtype, depth, balanced):
    """A causal sequence over both, with the gradients of q, k and v, beside one GPU."""
    tokens, block = 1024, 128
    mask = js.block_masks.causal(tokens, block_size=block)
    order = np.array([0, 1, 6, 7, 2, 3, 4, 5]) if balanced else np.arange(8)
    at = (order[:, None] * block + np.arange(block)).reshape(-1)
    arrays = [jnp.asarray(rng.standard_normal((2, tokens, h, depth)), dtype) for h in (4, 2, 2, 4)]
    mesh = jax.make_mesh((2,), ("seq",), (jax.sharding.AxisType.Auto,), devices=GPUS[:2])
    by = P(None, "seq")

    def local(q, k, v, mask):
        return js.ring_attention(q, k, v, mask, "seq")

    def both(attend):
        def run(q, k, v, ct, mask):
            out, pull = jax.vjp(lambda *qkv: attend(*qkv, mask), q, k, v)
            return out, *pull(ct)

        return jax.jit(run)

    ring = jax.shard_map(local, mesh=mesh, in_specs=(by, by, by, P()), out_specs=by)
    two = [jax.device_put(x[:, at], NamedSharding(mesh, by)) for x in arrays]
    taken = jax.device_put(mask.take(q_blocks=order, kv_blocks=order), NamedSharding(mesh, P()))
    one = jax.device_put((*arrays, mask), GPUS[0])
    want, over = both(js.sparse_attention)(*one), both(ring)
    text = over.lower(*two, taken).compile().as_text()
    assert "all-gather" not in text
    assert "collective-permute" in text
    for _ in range(4):  # command buffers come in from the second run on
        for got, whole in zip(over(*two, taken), want, strict=True):
            exact = np.asarray(whole, np.float32)[:, at]
            limit = 2e-2 if dtype == "bfloat16" else 5e-3  # TF32
            error = np.abs(np.asarray(got, np.float32) - exact).max()
            assert error <= limit * np.abs(exact).max()
