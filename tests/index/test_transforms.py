"""An index under jit, vmap, scan, remat, grad, shard_map and export; and as a pytree."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsparse as js

ALIGNMENTS = ["grid", "component"]


@pytest.fixture
def masks():
    return np.random.default_rng(0).random((2, 3, 2, 20, 37)) < 0.1


def build(implementation, align="grid", **options):
    def index(mask):
        return js.tile_index(
            mask, (4, 4), align=align, ordered=True, implementation=implementation, **options
        )

    return index


@pytest.mark.parametrize("align", ALIGNMENTS)
def test_nested_vmap(implementation, masks, align):
    index = build(implementation, align)
    out = jax.jit(jax.vmap(jax.vmap(index)))(masks)
    assert out.count.shape == (2, 3)
    for i in np.ndindex(2, 3):
        one = index(masks[i])
        jax.tree.map(lambda a, b, i=i: np.testing.assert_array_equal(a[i], b), out, one)
    np.testing.assert_array_equal(jax.vmap(jax.vmap(lambda x: x.cover()))(out), masks)


# Not in the op suite: the batch axis is not the first.
def test_vmap_of_an_inner_axis(implementation, masks):
    out = jax.vmap(build(implementation), in_axes=1)(masks[0].swapaxes(0, 1))
    np.testing.assert_array_equal(out.count[2], build(implementation)(masks[0, 2]).count)


def test_scan_carries_an_index(implementation, masks):
    index = build(implementation, capacity=30)
    first = index(jnp.zeros(masks.shape[2:], bool))

    def step(carry, mask):
        new = index(mask | carry.to_mask())
        return new, new.count

    last, counts = jax.jit(lambda m: jax.lax.scan(step, first, m))(masks[0])
    np.testing.assert_array_equal(last.to_mask(), masks[0].any(0))
    assert (np.diff(counts) >= 0).all()


def test_grad_and_remat_through_a_mask(implementation):
    x = jnp.linspace(-1.0, 1.0, 2 * 8 * 40).reshape(2, 8, 40)

    def loss(x):
        return jnp.where(build(implementation)(x > 0.5).cover(), x * x, 0.0).sum()

    want = np.where(np.asarray(x) > 0.5, 2 * x, 0)
    np.testing.assert_allclose(jax.grad(jax.checkpoint(loss))(x), want, rtol=1e-6)
    np.testing.assert_allclose(jax.vmap(jax.grad(loss))(x[None])[0], want, rtol=1e-6)


def test_an_index_is_a_pytree(implementation, masks):
    index = build(implementation)(masks[0, 0])
    leaves, tree = jax.tree.flatten(index)
    assert len(leaves) == 4
    again = jax.tree.unflatten(tree, leaves)
    assert (again.tile, again.shape, again.capacity) == ((4, 4), (2, 20, 37), 100)
    shapes = jax.eval_shape(build(implementation), masks[0, 0])
    assert shapes.ids.shape == (100,)


def test_a_cuda_lowering_needs_no_gpu(masks):
    lowered = jax.jit(build(None)).trace(masks[0, 0]).lower(lowering_platforms=("cuda",))
    assert "stablehlo" in lowered.as_text()
