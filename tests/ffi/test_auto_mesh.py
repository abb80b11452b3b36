"""A mesh of Auto axes: what is gathered is said, by `js.explain` and by a warning."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxsparse as js
from jaxsparse.ffi.rule import divides_in_part

pytestmark = pytest.mark.skipif(len(jax.devices()) < 4, reason="needs four devices")


@pytest.fixture
def put():
    mesh = jax.make_mesh((4,), ("b",), (AxisType.Auto,), devices=jax.devices()[:4])
    return lambda value, *axes: jax.device_put(value, NamedSharding(mesh, P(*axes)))


def test_what_is_split_is_not_mentioned(put, rng):
    x, mask = rng.random((8, 6, 6, 4), np.float32), rng.random((8, 6, 6)) < 0.5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = js.explain(js.masked_conv, put(x, "b"), jnp.ones((3, 3, 4, 4)), put(mask, "b"))
    assert not found.communication
    assert found.calls[0].counts == [int(mask.sum())] * len(found.calls[0].counts)
    assert "communicates" not in str(found)


def test_a_gather_is_explained_and_warned_of(put, rng):
    x, mask = rng.random((8, 8, 6, 4), np.float32), rng.random((8, 8, 6)) < 0.5
    kernel = jnp.ones((3, 3, 4, 4))
    with pytest.warns(RuntimeWarning, match="masked_conv: x axis 1 is sharded over mesh axis 'b'"):
        found = js.explain(js.masked_conv, put(x, None, "b"), kernel, mask)
    words = "masked_conv: x axis 1 is sharded over mesh axis 'b' and is gathered: an output reads"
    assert any(line.startswith(words) for line in found.communication)
    assert f"communicates: {words}" in str(found)
    np.testing.assert_allclose(found.result, js.masked_conv(x, kernel, mask), atol=1e-5)


@pytest.mark.filterwarnings("ignore:masked_matmul")
def test_blocks_that_the_mesh_divides_in_part(put, rng):
    """28 columns in 14 blocks over four devices, of which two would divide the blocks."""
    a, b = rng.random((5, 43), np.float32), rng.random((43, 28), np.float32)
    mask = rng.random((2, 14)) < 0.5
    run = jax.jit(lambda a, b, mask: js.masked_matmul(a, b, b_mask=mask, granularity=(33, 2)))
    got = run(a, put(b, None, "b"), mask)
    np.testing.assert_allclose(got, run(a, b, mask), rtol=1e-5)


@pytest.mark.parametrize(
    ("size", "lengths", "axes", "in_part"),
    [
        (14, (28, 14), (4,), True),
        (14, (14,), (4,), False),  # no axis of an array can be split
        (4, (8,), (4,), False),
        (3, (12,), (4,), False),  # nothing divides it
        (2, (2, 16), (2, 4), True),  # the axis of four does
        (4, (16,), (2, 4), True),  # both of them together do
        (8, (16,), (2, 4), False),
    ],
)
def test_what_a_mesh_divides_in_part(size, lengths, axes, in_part):
    assert divides_in_part(size, lengths, axes) == in_part


def test_a_limited_list_is_one_list(put, rng):
    """An index with less room than tiles is the same on a mesh, also what it leaves out."""
    mask = rng.random((8, 8, 6)) < 0.5
    x, kernel = rng.random((8, 8, 6, 4), np.float32), jnp.ones((3, 3, 4, 4))

    def run(x, mask):
        index = js.tile_index(mask, (2, 2), capacity=7, ordered=True)
        return js.masked_conv(x, kernel, index), index.count, index.overflow, index.ids

    with pytest.warns(RuntimeWarning, match="room for 7 of 96 tiles"):
        got = jax.jit(run)(put(x, "b"), put(mask, "b"))
    for one, other in zip(got, run(x, mask), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_settings_hold_in_a_shard(put, rng):
    """XLA asks for the call of a shard when it compiles, after the `with` block of a setting."""
    x, mask = rng.random((8, 6, 6, 4), np.float32), rng.random((8, 6, 6)) < 0.5
    with js.config(variant="dense"):
        lowered = jax.jit(lambda x, m: js.masked_conv(x, jnp.ones((3, 3, 4, 4)), m)).lower(
            put(x, "b"), put(mask, "b")
        )
    assert "jaxsparse_masked_conv" not in str(lowered.compile().as_text())


def test_weights_that_are_gathered_when_used(put, rng):
    """Split over the axis of the images: `explain` says so, and nothing warns."""
    x, mask = rng.random((8, 6, 6, 4), np.float32), rng.random((8, 6, 6)) < 0.5
    kernel = rng.random((3, 3, 4, 8), np.float32)
    split = put(kernel, None, None, None, "b")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = js.explain(js.masked_conv, put(x, "b"), split, put(mask, "b"))
    said = "masked_conv: kernel axis 3 is sharded over mesh axis 'b' and is gathered: x axis 0 is"
    assert any(line.startswith(said) for line in found.communication)
    np.testing.assert_allclose(found.result, js.masked_conv(x, kernel, mask), atol=1e-4)


def test_an_index_of_a_sharded_mask_lists_each_shards_tiles(put, rng):
    mask = rng.random((8, 8, 8)) < 0.3
    index = jax.jit(lambda m: js.tile_index(m, (2, 2)))(put(mask, "b"))
    assert index.ids.sharding.is_equivalent_to(index.words.sharding, 1)
    assert int(index.count) == int(js.tile_index(mask, (2, 2)).count)
    for shard in index.ids.addressable_shards:
        ids = np.asarray(shard.data)
        image = ids[ids >= 0] // 16
        first = shard.index[0].start // 16
        assert ((image >= first) & (image < first + 2)).all()
    np.testing.assert_array_equal(index.cover(), mask)
    x, kernel = rng.random((8, 8, 8, 4), np.float32), jnp.ones((3, 3, 4, 4))
    got = jax.jit(js.masked_conv)(put(x, "b"), kernel, index)
    np.testing.assert_allclose(got, js.masked_conv(x, kernel, mask), atol=1e-4)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_the_tiles_of_a_sharded_index_gather_nothing(kind, rng):
    mask = rng.random((8, 9, 37)) < 0.05
    want = np.stack([np.pad(m, ((0, 1), (0, 3))).reshape(5, 2, 10, 4).any((1, 3)) for m in mask])
    mesh = jax.make_mesh((4,), ("b",), (kind,), devices=jax.devices()[:4])

    def tiles(mask):
        return js.tile_index(mask, (2, 4)).tile_mask()

    given = jax.device_put(mask, NamedSharding(mesh, P("b")))
    compiled = jax.jit(tiles).lower(given).compile()
    assert "all-gather" not in compiled.as_text()
    found = compiled(given)
    np.testing.assert_array_equal(found, want)
    assert found.sharding.is_equivalent_to(NamedSharding(mesh, P("b")), 3)
    np.testing.assert_array_equal(jax.vmap(tiles)(mask[:, None])[:, 0], want)
