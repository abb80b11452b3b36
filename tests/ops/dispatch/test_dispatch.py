"""`dispatch` and `combine` on four devices, or two: the layer of one device, forward and backward,
by both ways of exchanging rows.

They take no `implementation=` and run inside of `jax.shard_map` only, so the op suite does not
serve them.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import jaxsparse as js
from jaxsparse.ops.dispatch import exchange

DEVICES = min(4, jax.device_count() // 2 * 2)
TOKENS, EXPERTS, TOP_K, D, HIDDEN = 6, 8, 2, 5, 7
pytestmark = pytest.mark.skipif(DEVICES < 2, reason="needs two devices")


def emulated(operand, output, input_offsets, send_sizes, output_offsets, recv_sizes, axis_name):
    """`jax.lax.ragged_all_to_all` as its documentation defines it; XLA's CPU has none."""
    every = functools.partial(jax.lax.all_gather, axis_name=axis_name)
    rows, begins, sizes, ends = map(every, (operand, input_offsets, send_sizes, output_offsets))
    me, devices = jax.lax.axis_index(axis_name), rows.shape[0]
    each = sizes.shape[1] // devices
    at = jnp.arange(output.shape[0])
    for source in range(devices):
        for i in range(each):
            run = me * each + i
            begin, size, to = begins[source, run], sizes[source, run], ends[source, run]
            inside = (at >= to) & (at < to + size)
            taken = rows[source].at[begin + at - to].get(mode="clip")
            output = jnp.where(inside[:, None], taken, output)
    return output


@pytest.fixture(params=["padded", "ragged"])
def way(request, monkeypatch):
    """Both ways of exchanging rows, on this platform; a GPU has both."""
    here = "cpu" if jax.default_backend() == "cpu" else "cuda"
    monkeypatch.setattr(exchange, "RAGGED_ON", (here,) if request.param == "ragged" else ("rocm",))
    if here == "cpu":
        monkeypatch.setattr(jax.lax, "ragged_all_to_all", emulated)
    jax.clear_caches()
    return request.param


def mesh_of(kind=AxisType.Auto):
    return jax.make_mesh((DEVICES,), ("e",), (kind,), devices=jax.devices()[:DEVICES])


def draw(rng, skewed=False):
    """Tokens of all devices, experts' weights, ids (some -1; `skewed`: all of one device) and the
    weights of the assignments."""
    ids = rng.integers(-1, 2 if skewed else EXPERTS, (DEVICES * TOKENS, TOP_K)).astype(np.int32)
    shapes = (len(ids), D), (EXPERTS, D, HIDDEN), (EXPERTS, HIDDEN, D), (len(ids), TOP_K)
    floats = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    return ids, *map(jnp.asarray, floats)


def on_one_device(ids, x, up, down, weights):
    """Every assignment by itself, in numpy's order."""
    used = jnp.where(ids < 0, 0, weights)
    h = jnp.tanh(jnp.einsum("td,tkdh->tkh", x, up[ids], precision="highest"))
    return jnp.einsum("tk,tkh,tkhd->td", used, h, down[ids], precision="highest")


def parallel(capacity=None):
    """The same with tokens and experts split over four devices, and the overflow."""

    def local(ids, x, up, down, weights):
        rows, sent = js.dispatch(x, js.route(ids, EXPERTS), "e", capacity=capacity)
        assert sent.capacity == (TOKENS * TOP_K if capacity is None else capacity)
        assert rows.shape == (DEVICES * sent.capacity, D)
        h = jnp.tanh(js.grouped_matmul(rows, up, sent.group_sizes, precision="highest"))
        y = js.grouped_matmul(h, down, sent.group_sizes, precision="highest")
        return js.combine(y, sent, weights), sent.overflow

    return jax.shard_map(local, mesh=mesh_of(), in_specs=P("e"), out_specs=(P("e"), P()))


def test_equal_to_one_device(way, rng):
    """Values, gradients and tangents; without a capacity nothing is ever lost."""
    layer, ct = parallel(), jnp.asarray(rng.standard_normal((DEVICES * TOKENS, D)), jnp.float32)

    def derivatives(run):
        def all_of(ids, floats):
            y, pull, overflow = jax.vjp(lambda *f: run(ids, *f), *floats, has_aux=True)
            moved = tuple(f[::-1] for f in floats)
            tangent = jax.jvp(lambda *f: run(ids, *f)[0], floats, moved)[1]
            return y, pull(ct), tangent, overflow

        return jax.jit(all_of)

    got, want = derivatives(layer), derivatives(lambda *a: (on_one_device(*a), jnp.bool_(False)))
    for skewed in (False, True):
        ids, *floats = draw(rng, skewed)
        pair = got(ids, tuple(floats)), want(ids, tuple(floats))
        assert jax.tree.structure(pair[0]) == jax.tree.structure(pair[1])
        for a, b in zip(*map(jax.tree.leaves, pair), strict=True):
            np.testing.assert_allclose(a, b, atol=2e-4, rtol=2e-4)


# Not in the op suite: that runs the way of this platform, over one batch axis.
@pytest.mark.parametrize("way", ["ragged"], indirect=True)
@pytest.mark.parametrize("batched", [(4,), (0, 1, 2, 3, 4)])
def test_vmap(way, rng, batched):
    """Twice, over the weights of the assignments alone, or everything."""
    draws = [draw(rng) for _ in range(4)]
    given = [
        np.stack([d[i] for d in draws]).reshape(2, 2, *v.shape) if i in batched else v
        for i, v in enumerate(draws[0])
    ]
    axes = [0 if i in batched else None for i in range(5)]
    run = jax.vmap(jax.vmap(lambda *a: parallel()(*a)[0], axes), axes)
    got = jax.jit(run)(*given).reshape(4, -1, D)
    for i, drawn in enumerate(draws):
        one = [v if at in batched else draws[0][at] for at, v in enumerate(drawn)]
        np.testing.assert_allclose(got[i], on_one_device(*one), atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("way", ["ragged"], indirect=True)
def test_an_overflow_is_told_and_the_rest_is_right(way, rng):
    ids, *floats = draw(rng, skewed=True)
    y, overflow = jax.jit(parallel(capacity=3))(ids, *floats)
    assert overflow
    for device in range(DEVICES):  # the first three of each device's sorted assignments are sent
        own = ids[device * TOKENS :][:TOKENS]
        routing = js.route(own, EXPERTS)
        flat = np.full(own.size, -1)
        sent = np.asarray(routing.order)[:3]
        flat[sent] = own.reshape(-1)[sent]
        part = slice(device * TOKENS, (device + 1) * TOKENS)
        x, up, down, weights = floats
        want = on_one_device(flat.reshape(own.shape), x[part], up, down, weights[part])
        np.testing.assert_allclose(y[part], want, atol=2e-4)


def test_without_weights_on_an_explicit_mesh(rng):
    """Tokens of 16 bits there and back: each comes back as often as it was sent."""
    ids, x, *_ = draw(rng)
    x = x.astype(jnp.bfloat16)

    def local(ids, x):
        rows, sent = js.dispatch(x, js.route(ids, EXPERTS), "e")
        unread = jnp.arange(rows.shape[0]) >= sent.group_sizes.sum()
        return js.combine(jnp.where(unread[:, None], jnp.nan, rows), sent)

    mesh = mesh_of(AxisType.Explicit)
    with jax.set_mesh(mesh):
        ids, x = (jax.sharding.reshard(v, P("e")) for v in (ids, x))
        y = jax.jit(jax.shard_map(local, in_specs=P("e"), out_specs=P("e")))(ids, x)
    times = (np.asarray(ids) >= 0).sum(1, keepdims=True)
    want = times * np.asarray(x, np.float32)
    np.testing.assert_allclose(np.asarray(y, np.float32), want, rtol=1e-2)


def test_no_tokens_and_no_columns():
    def local(ids, x):
        rows, sent = js.dispatch(x, js.route(ids, EXPERTS), "e")
        return js.combine(rows, sent)

    run = jax.jit(jax.shard_map(local, mesh=mesh_of(), in_specs=P("e"), out_specs=P("e")))
    for tokens, columns in ((0, D), (DEVICES, 0)):
        x = jnp.zeros((tokens, columns), jnp.float32)
        assert run(jnp.zeros((tokens, TOP_K), jnp.int32), x).shape == x.shape


def test_bad_input(rng):
    ids, x, *_ = draw(rng)
    routing = js.route(ids, EXPERTS)
    with pytest.raises(ValueError, match=r"axis_name='e' is not an axis of a jax\.shard_map"):
        js.dispatch(x, routing, "e")

    def inside(local):
        split = jax.shard_map(local, mesh=mesh_of(), in_specs=P("e"), out_specs=P("e"))
        jax.eval_shape(split, ids, x)

    def made(ids, x):
        return js.dispatch(x, js.route(ids, EXPERTS), "e")

    for call, kind, words in (
        (
            lambda i, x: js.combine(x, made(i, x)[1]),
            ValueError,
            f"y has 6 rows; .*room for {12 * DEVICES}",
        ),
        (lambda i, x: js.combine(x, x), TypeError, "exchange must be that of js.dispatch"),
        (
            lambda i, x: js.combine(*made(i, x), x),
            ValueError,
            "weights has shape .*need .6, 2",
        ),
    ):
        with pytest.raises(kind, match=words):
            inside(call)
