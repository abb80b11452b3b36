"""Leading axes that a mesh does not divide: XLA splits what is joined of them over a piece of a
mesh axis, and the call compiles, gathers with a warning, and gives the result and gradient of one
device.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxsparse as js
from jaxsparse.ffi.decode import spec_on

pytestmark = pytest.mark.skipif(jax.device_count() < 4, reason="needs four devices")


def _product(rng):
    w = rng.standard_normal((16, 8)).astype(np.float32)
    weight = js.pruned.inspect(w, mask=js.prune.magnitude(w, 0.8))
    return lambda x: js.pruned_matmul(x, weight), (14, 5, 16)


def _masked(rng):
    b, mask = rng.random((16, 8), np.float32), jnp.asarray(rng.random((14, 2, 1, 2)) < 0.5)
    return lambda x: js.masked_matmul(x, b, a_mask=mask, granularity=(32, 8)), (14, 2, 32, 16)


def _both(rng):
    b, mask = rng.random((14, 2, 16, 8), np.float32), jnp.asarray(rng.random((1, 2)) < 0.5)
    return lambda x: js.masked_matmul(x, b, a_mask=mask, granularity=(32, 8)), (14, 2, 32, 16)


def _images(rng):
    kernel, mask = rng.random((3, 3, 8, 8), np.float32), jnp.asarray(rng.random((14, 8, 8)) < 0.3)
    return lambda x: js.masked_conv(x, kernel, js.tile_index(mask), base=x), (14, 8, 8, 8)


@pytest.mark.parametrize("make", [_product, _masked, _both, _images])
def test_fourteen_over_four_devices(make, rng):
    mesh = jax.make_mesh((4,), ("b",), axis_types=(AxisType.Auto,))
    run, shape = make(rng)
    spread = NamedSharding(mesh, P("b"))
    x = jax.device_put(rng.random(shape, np.float32), NamedSharding(mesh, P()))

    def values(sharding):
        def loss(x):
            y = run(x if sharding is None else jax.lax.with_sharding_constraint(x, sharding))
            return (y**2).sum(), y

        return jax.jit(jax.grad(loss, has_aux=True))(x)

    with pytest.warns(RuntimeWarning, match="4 shards do not divide"):
        slope, got = values(spread)
    expected_slope, expected = values(None)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(slope, expected_slope, rtol=1e-4, atol=1e-4)


def test_the_axes_of_a_sharding_are_found():
    mesh = jax.make_mesh((2, 2), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
    parts = [None, ("a",), ("b",), ("a", "b"), ("b", "a")]
    for spec in itertools.product(parts, repeat=2):
        names = [name for part in spec for name in part or ()]
        if len(names) == len(set(names)):
            assert spec_on(mesh, NamedSharding(mesh, P(*spec)), 2) == P(*spec)


@pytest.mark.parametrize(("shape", "axis"), [((2, 2), 0), ((2, 2), 1), ((4, 1), 0)])
def test_a_piece_of_a_mesh_axis_counts_as_the_whole(shape, axis):
    pieces = jax.make_mesh(shape, ("major", "minor"), axis_types=(AxisType.Auto,) * 2)
    mesh = jax.make_mesh((4,), ("b",), axis_types=(AxisType.Auto,))
    sharding = NamedSharding(pieces, P(None, pieces.axis_names[axis]))
    assert spec_on(mesh, sharding, 2) == P(None, ("b",))
