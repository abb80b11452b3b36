"""route against a stable sort in numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P
from ops.grouped_matmul.oracle import route as oracle

import jaxsparse as js


def check(got, ids, experts):
    order, sizes = oracle(ids, experts)
    np.testing.assert_array_equal(got.order, order)
    np.testing.assert_array_equal(got.gather, order // max(np.shape(ids)[1], 1))
    np.testing.assert_array_equal(got.scatter, got.gather)
    np.testing.assert_array_equal(got.group_sizes, sizes)
    assert all(v.dtype == jnp.int32 for v in got)


@given(
    data=st.data(), tokens=st.integers(0, 40), top_k=st.integers(0, 4), experts=st.integers(0, 9)
)
def test_any_shape(implementation, data, tokens, top_k, experts):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**31)))
    ids = rng.integers(-2, experts + 2, (tokens, top_k)).astype(np.int32)
    check(js.route(jnp.asarray(ids), experts, implementation=implementation), ids, experts)


@pytest.mark.parametrize("dtype", [jnp.int8, jnp.uint8, jnp.int16, jnp.uint32])
def test_dtypes(implementation, dtype):
    ids = np.asarray([[3, 1], [0, 120], [1, 3]])
    check(js.route(jnp.asarray(ids).astype(dtype), 4, implementation=implementation), ids, 4)


def test_huge_ids_do_not_wrap(implementation):
    ids = np.asarray([[2**32 - 1], [2**31], [1], [2**31 + 1]], np.uint32)
    check(js.route(jnp.asarray(ids), 3, implementation=implementation), ids.astype(np.int64), 3)


def test_numpy_ids_do_not_wrap(implementation):
    """Without x64, jax would keep the low 32 bits."""
    for dtype in (np.int64, np.uint64):
        ids = np.asarray([[2**32 + 1], [2**32 + 2], [2**31], [3]], dtype)
        check(js.route(ids, 4, implementation=implementation), ids.astype(np.int64), 4)


# Not in the op suite: no implementation is named, so that two are traced.
@pytest.mark.skipif(len(jax.devices()) < 4, reason="needs four devices")
@pytest.mark.parametrize("chosen", [None, "reference"])
def test_shard_map(chosen, rng):
    """Each device routes its own tokens; where no implementation is named, both are traced."""
    ids = rng.integers(-1, 5, (12, 2)).astype(np.int32)
    auto = (jax.sharding.AxisType.Auto,)
    mesh = jax.make_mesh((4,), ("data",), auto, devices=jax.devices()[:4])
    one = lambda v: js.route(v, 5, implementation=chosen)  # noqa: E731
    for run in (one, lambda v: jax.tree.map(lambda r: r[0], jax.vmap(one)(v[None]))):
        spread = jax.shard_map(run, mesh=mesh, in_specs=P("data"), out_specs=P("data"))
        for call in (spread, jax.jit(spread)):
            got = jax.tree.map(lambda v: v.reshape(4, -1), call(jnp.asarray(ids)))
            for i in range(4):
                check(jax.tree.map(lambda v, i=i: v[i], got), ids[3 * i : 3 * i + 3], 5)


def test_route_feeds_grouped_matmul(implementation, rng):
    """The mixture of experts, by route and by hand."""
    x = jnp.asarray(rng.standard_normal((10, 6), np.float32))
    w = jnp.asarray(rng.standard_normal((4, 6, 7), np.float32))
    ids = jnp.asarray(rng.integers(-1, 4, (10, 2)), jnp.int32)
    weights = jnp.asarray(rng.random((10, 2), np.float32))
    r = js.route(ids, 4, implementation=implementation)
    got = js.grouped_matmul(
        x,
        w,
        r.group_sizes,
        gather=r.gather,
        scatter=r.scatter,
        row_weights=weights.reshape(-1)[r.order],
        implementation=implementation,
    )
    want = np.zeros((10, 7))
    for t in range(10):
        for k in range(2):
            if ids[t, k] >= 0:
                want[t] += float(weights[t, k]) * np.asarray(x[t] @ w[ids[t, k]], np.float64)
    np.testing.assert_allclose(got, want, atol=2e-5)
