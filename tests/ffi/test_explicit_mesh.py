"""Arrays that are sharded over explicit mesh axes: split, or refused with a sentence that names
the user's argument; taken in shard_map.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import jaxsparse as js

pytestmark = pytest.mark.skipif(len(jax.devices()) < 4, reason="needs four devices")


@pytest.fixture
def put():
    axes = (jax.sharding.AxisType.Explicit,)
    mesh = jax.make_mesh((4,), ("b",), axes, devices=jax.devices()[:4])
    with jax.set_mesh(mesh):
        yield lambda value: jax.device_put(value, NamedSharding(mesh, P("b")))


def test_refused_outside_of_shard_map(put, rng):
    """Ops that are not split by themselves."""
    rows = put(rng.random((8, 64), np.float32))
    for call in (
        lambda: js.grouped_matmul(rows, jnp.ones((2, 64, 3)), jnp.array([3, 5])),
        lambda: js.route(put(np.zeros((8, 2), np.int32)), 3),
        lambda: js.nn.linen.MoE(4, 16, routing="expert_choice").init(jax.random.key(0), rows),
    ):
        with pytest.raises(ValueError, match=r"inside (of )?jax[.]shard_map"):
            call()


def test_what_cannot_be_split_is_named(put, rng):
    """The user's argument, its axis, the reason, and what to do."""
    x, k = rng.random((8, 8, 8, 4), np.float32), jnp.ones((3, 3, 4, 4))
    mask = rng.random((8, 8, 8)) < 0.5
    channels = jax.device_put(k, NamedSharding(jax.sharding.get_mesh(), P(None, None, "b")))
    for call, words in (
        (
            lambda: js.masked_conv(x, channels, mask, activation="relu"),
            r"kernel axis 2 is sharded over mesh axis 'b', but a bias, an activation.*reshard",
        ),
        (
            lambda: js.masked_conv(put(x.swapaxes(0, 1)).swapaxes(0, 1), k, mask),
            "x axis 1 is sharded over mesh axis 'b', but an output reads pixels around its own",
        ),
        (
            lambda: js.masked_conv(put(x), put(jnp.ones((4, 3, 4, 4))), mask),
            "kernel axis 0 is sharded over mesh axis 'b', but an output reads",
        ),
        (
            lambda: js.masked_dense(put(x), put(jnp.ones((4, 8))), mask, activation="relu"),
            "w axis -2 is sharded over mesh axis 'b', but a bias",
        ),
        (
            lambda: js.tile_index(put(mask), (4, 4), capacity=3),
            "a list with room for 3 of 32 tiles is one list of all images",
        ),
    ):
        with pytest.raises(ValueError, match=words):
            call()


@pytest.mark.parametrize("align", ["grid", "component"])
def test_an_index_of_images_without_pixels(put, align):
    """The branches of both platforms have results that vary over the mesh."""
    index = jax.jit(lambda m: js.tile_index(m, (4, 4), align=align))(put(np.zeros((8, 4, 0), bool)))
    assert (int(index.count), index.ids.shape[0]) == (0, 0)


@pytest.mark.parametrize("implementation", [None, "reference"])
def test_replicated_operands_are_taken(put, rng, implementation):
    """Beside the kernel the reference is traced, whose `ragged_dot` knows no explicit axes."""
    x = jnp.asarray(rng.random((8, 6), np.float32))
    rhs = jnp.asarray(rng.random((3, 6, 5), np.float32))
    sizes = jnp.array([3, 0, 4])

    def loss(x, rhs):
        y = js.grouped_matmul(x, rhs, sizes, implementation=implementation)
        return jnp.sum(jnp.sin(y))

    def plain(x, rhs):
        return jnp.sum(jnp.sin(x[:3] @ rhs[0])) + jnp.sum(jnp.sin(x[3:7] @ rhs[2]))

    got, want = (jax.jit(jax.grad(f, (0, 1)))(x, rhs) for f in (loss, plain))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    layer = js.nn.linen.MoE(4, 16, top_k=2, implementation=implementation)
    y, _ = layer.init_with_output(jax.random.key(0), x)[0]
    assert y.shape == x.shape


def test_taken_inside(put, rng):
    x = rng.random((8, 6, 6, 4), np.float32)
    mask = rng.random((8, 6, 6)) < 0.5
    k = jnp.asarray(rng.random((3, 3, 4, 4), np.float32))
    specs = (P("b"), P(), P("b"))
    run = jax.jit(jax.shard_map(js.masked_conv, in_specs=specs, out_specs=P("b")))
    np.testing.assert_allclose(run(put(x), k, put(mask)), js.masked_conv(x, k, mask), atol=1e-5)
