"""An index under jit, vmap, scan, remat, grad, shard_map and export; and as a pytree."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

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


def test_one_compile_serves_every_mask(implementation, masks):
    traces = []

    @jax.jit
    def count(mask):
        traces.append(1)
        return build(implementation)(mask).count

    counts = {int(count(m)) for m in masks[0]}
    assert len(traces) == 1
    assert counts


@pytest.mark.parametrize("align", ALIGNMENTS)
def test_shard_map(implementation, masks, align):
    devices = jax.devices()[:2]
    mesh = Mesh(np.array(devices), ("x",))
    batch = np.concatenate([masks[0, 0], masks[0, 1]])
    spec = PartitionSpec("x")

    def body(mask):
        index = build(implementation, align)(mask)
        _, counts = jax.lax.scan(
            lambda c, m: (c, build(implementation, align)(m[None]).count), 0, mask
        )
        return index.count[None], index.cover(), counts

    run = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=spec, out_specs=(spec, spec, spec)))
    count, cover, counts = run(batch)
    np.testing.assert_array_equal(cover, batch)
    assert int(count.sum()) == int(build(implementation, align)(batch).count)
    assert int(counts.sum()) == int(count.sum())


def test_export(implementation, masks):
    exported = jax.export.export(
        jax.jit(lambda m: build(implementation)(m).ids),
        disabled_checks=js.DISABLE_JAX_EXPORT_CHECKS,
    )(masks[0, 0])
    again = jax.export.deserialize(exported.serialize())
    np.testing.assert_array_equal(again.call(masks[0, 0]), build(implementation)(masks[0, 0]).ids)


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
