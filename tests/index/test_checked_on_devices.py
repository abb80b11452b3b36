"""`js.checked()` on several devices: a fault of one device is an error, and no device waits for it.

Where a callback raised on one device, XLA would end the process.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import jaxsparse as js

pytestmark = pytest.mark.skipif(jax.device_count() < 4, reason="needs four devices")


@pytest.fixture
def mesh():
    return jax.make_mesh((4,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))


def test_one_device_s_experts_out_of_range_raise_at_the_end_of_the_block(mesh):
    def counts(ids):
        return jax.lax.psum(js.route(ids, 8).group_sizes, "data")

    counts = jax.jit(jax.shard_map(counts, mesh=mesh, in_specs=P("data"), out_specs=P()))
    ids = jnp.zeros((32, 1), jnp.int32)
    with pytest.raises(ValueError, match="1 ids past the 8 experts"), js.checked():
        jax.block_until_ready(counts(ids.at[3].set(9)))
    with js.checked():  # nothing is left of the error
        np.testing.assert_array_equal(counts(ids)[:2], [32, 0])


def test_a_capacity_that_is_too_small_raises_under_plain_jit(mesh):
    over_images = NamedSharding(mesh, P("data"))
    x = jax.device_put(jnp.ones((4, 8, 8, 8)), over_images)
    mask = jax.device_put(np.ones((4, 8, 8), bool), over_images)

    @jax.jit
    @jax.grad
    def step(kernel, x, mask):
        return js.masked_conv(x, kernel, js.tile_index(mask, capacity=2)).sum()

    with (
        pytest.warns(RuntimeWarning, match="is gathered"),
        pytest.raises(ValueError, match="a capacity of 2"),
        js.checked(),
    ):
        jax.block_until_ready(step(jnp.ones((3, 3, 8, 8)), x, mask))


def test_rows_of_a_mask_that_one_device_makes_raise_in_the_ring(mesh):
    sequence, kept = P(None, "data"), np.zeros((1, 1, 64, 64), bool)
    kept[:, :, :16, ::2] = True  # partial blocks of the first device alone

    def attend(x, kept):
        mask = js.BlockMask.from_dense(kept, 16, partial_capacity=1)
        return js.ring_attention(x, x, x, mask, "data")

    specs = (sequence, P(None, None, "data"))
    ring = jax.shard_map(attend, mesh=mesh, in_specs=specs, out_specs=sequence)
    with pytest.raises(ValueError, match="more partial blocks than"), js.checked():
        jax.block_until_ready(jax.jit(ring)(jnp.ones((1, 64, 1, 16)), kept))
