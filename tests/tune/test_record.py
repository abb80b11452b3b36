"""The masks of a model's run, and tuning on them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsparse as js

X, KERNEL = jnp.ones((2, 9, 11, 4)), jnp.ones((3, 3, 4, 4)) / 36


def model(x, threshold):
    """Two layers on one mask of the data, and one on what survives."""
    mask = x[..., 0] > threshold
    index = js.tile_index(mask, (1, 1))
    y = js.masked_conv(js.masked_conv(x, KERNEL, index), KERNEL, index)
    return js.masked_conv(y, KERNEL, mask & (y[..., 0] > 0.2))


def batches(count):
    rng = np.random.default_rng(3)
    return [(jnp.asarray(rng.random(X.shape, np.float32)), jnp.float32(0.5)) for _ in range(count)]


@pytest.mark.parametrize("jitted", [True, False])
def test_every_mask_once(jitted):
    given = batches(3)
    seen = js.record_masks(jax.jit(model) if jitted else model, given)
    wanted = [np.asarray(x[..., 0] > threshold) for x, threshold in given]
    assert all(mask.dtype == np.bool_ and mask.shape == X.shape[:3] for mask in seen)
    for want in wanted:
        assert sum(np.array_equal(want, mask) for mask in seen) == 1
    assert len(wanted) < len(seen) <= 2 * len(wanted)  # and the masks of the third layer


def test_gradients_and_vmap():
    x, _ = batches(1)[0]

    def loss(x):
        return jnp.sum(jax.vmap(lambda one: model(one[None], 0.5))(x))

    seen = js.record_masks(jax.grad(loss), [x])
    assert any(np.array_equal(mask[0], np.asarray(x[0, ..., 0] > 0.5)) for mask in seen)


def test_the_function_records_no_more_afterwards():
    run = jax.jit(model)
    assert js.record_masks(run, batches(1))
    text = run.lower(*batches(1)[0]).as_text()
    assert "callback" not in text


def test_tuning_takes_them():
    call = jax.jit(lambda x, mask: js.masked_conv(x, KERNEL, js.tile_index(mask, (1, 1))))
    args = X, X[..., 0] > 0
    seen = js.record_masks(call, [args])
    table = js.tune(call, *args, masks=seen, calls=2, samples=1, cache=False, progress=False)
    assert table.entries


def test_bad_input():
    with pytest.raises(ValueError, match="batches is empty"):
        js.record_masks(model, [])
    with pytest.raises(ValueError, match=r"calls no operation .*: masked_conv, masked_dense"):
        js.record_masks(jnp.sin, [jnp.ones(3)])
    with pytest.raises(TypeError, match="fn must be callable, not int"):
        js.record_masks(3, [jnp.ones(3)])  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"batches is one array: .* \[batch\]"):
        js.record_masks(model, jnp.ones((1, 8, 8, 4)))
