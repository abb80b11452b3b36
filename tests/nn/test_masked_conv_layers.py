"""Both layers against flax's Conv: values, parameters, gradients, dtypes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx, serialization
from jax.test_util import check_grads
from layers import IN, OUT, Linen, Nnx, expected, image, index, mask_for

OPTIONS = {
    "plain": {},
    "strides": {"strides": 2},
    "strides_none": {"strides": None},
    "strides_pair": {"strides": (2, 1), "padding": "VALID"},
    "padding_int": {"padding": 2},
    "padding_ints": {"padding": (1, 0)},
    "padding_pairs": {"padding": [(0, 1), (2, 0)]},
    "dilation": {"kernel_dilation": 2},
    "groups": {"feature_group_count": 2},
    "no_bias": {"use_bias": False},
    "kernel": {"kernel_size": [1, 5]},
    "highest": {"precision": "highest"},
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("as_index", [False, True])
def test_values_equal_flax_times_mask(face, name, as_index, rng, implementation):
    x = image(rng)
    y = face.flax(**OPTIONS[name])(x)
    mask = mask_for(y, rng)
    base = jnp.asarray(rng.standard_normal(y.shape), y.dtype)
    layer = face.masked(**OPTIONS[name], implementation=implementation)
    active = index(mask) if as_index else mask
    np.testing.assert_allclose(layer(x, active), expected(y, mask), rtol=2e-5, atol=2e-5)
    got = layer(x, active, base=base)
    np.testing.assert_allclose(got, expected(y, mask, base), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", OPTIONS)
def test_no_mask_is_flax_to_the_bit(face, name, rng):
    x = image(rng)
    np.testing.assert_array_equal(face.masked(**OPTIONS[name])(x), face.flax(**OPTIONS[name])(x))


@pytest.mark.parametrize("activation", ["relu", "relu6", "silu", "gelu"])
def test_activation(face, activation, rng):
    x = image(rng)
    y = getattr(jax.nn, activation)(face.flax()(x))
    layer = face.masked(activation=activation)
    mask = mask_for(y, rng)
    np.testing.assert_allclose(layer(x), y, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(layer(x, mask), expected(y, mask), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("activation", [None, "relu"])
def test_residual(face, activation, rng, implementation):
    x = image(rng)
    y = face.flax()(x)
    residual = jnp.asarray(rng.standard_normal(y.shape), y.dtype)
    y = y + residual if activation is None else jax.nn.relu(y + residual)
    layer = face.masked(activation=activation, implementation=implementation)
    mask = mask_for(y, rng)
    np.testing.assert_allclose(layer(x, residual=residual), y, rtol=1e-6, atol=1e-6)
    got = layer(x, mask, residual=residual)
    np.testing.assert_allclose(got, expected(y, mask), rtol=2e-5, atol=2e-5)


def test_weight_mask_keeps_its_meaning(face, rng):
    weights = jnp.asarray(rng.random((3, 3, IN, OUT)) < 0.5, jnp.float32)
    x = image(rng)
    y = face.flax(mask=weights)(x)
    mask = mask_for(y, rng)
    got = face.masked(mask=weights)(x, mask)
    np.testing.assert_allclose(got, expected(y, mask), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("shape", [(9, 11, IN), (3, 2, 9, 11, IN), (0, 9, 11, IN)])
def test_any_number_of_batch_axes(face, shape, rng):
    x = image(rng, shape)
    mask = jnp.asarray(rng.random(shape[:-1]) < 0.5)
    base = jnp.ones((*shape[:-1], OUT), jnp.float32)
    layer = face.masked()
    y = face.flax()(x) if x.size else base
    got = layer(x, mask, base=base)
    assert got.shape == base.shape
    np.testing.assert_allclose(got, expected(y, mask, base), rtol=2e-5, atol=2e-5)


def test_one_index_of_all_batch_axes(face, rng):
    x = image(rng, (3, 2, 9, 11, IN))
    mask = jnp.asarray(rng.random((3, 2, 9, 11)) < 0.5)
    layer = face.masked()
    flat = index(mask.reshape(6, 9, 11))
    np.testing.assert_allclose(layer(x, flat), layer(x, mask), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("use_bias", [True, False])
@pytest.mark.parametrize("param_dtype", [jnp.float32, jnp.bfloat16])
def test_linen_params_are_flax_params(use_bias, param_dtype, rng):
    options = {"use_bias": use_bias, "param_dtype": param_dtype, "feature_group_count": 2}
    ours, flax = Linen.masked(**options), Linen.flax(**options)
    x = image(rng)
    mask = mask_for(x, rng)
    sparse = ours.layer.init(jax.random.key(0), x.astype(param_dtype), mask)
    for params in (ours.params, sparse):
        assert jax.tree.structure(params) == jax.tree.structure(flax.params)
        jax.tree.map(np.testing.assert_array_equal, params, flax.params)
        described = [jax.tree.map(lambda p: (p.shape, p.dtype), p) for p in (params, flax.params)]
        assert described[0] == described[1]


def test_linen_checkpoint_loads_both_ways(rng):
    x = image(rng)
    ours, flax = Linen.masked(), Linen.flax()
    changed = jax.tree.map(lambda p: p + 1, flax.params)
    loaded = serialization.from_bytes(ours.params, serialization.to_bytes(changed))
    np.testing.assert_array_equal(ours.layer.apply(loaded, x), flax.layer.apply(changed, x))
    back = serialization.from_bytes(flax.params, serialization.to_bytes(loaded))
    jax.tree.map(np.testing.assert_array_equal, back, changed)


@pytest.mark.parametrize("use_bias", [True, False])
def test_nnx_state_loads_both_ways(use_bias, rng):
    x = image(rng)
    ours, flax = Nnx.masked(use_bias=use_bias), Nnx.flax(use_bias=use_bias)
    state, theirs = (nnx.to_pure_dict(nnx.state(face.layer)) for face in (ours, flax))
    assert jax.tree.structure(state) == jax.tree.structure(theirs)
    jax.tree.map(np.testing.assert_array_equal, state, theirs)
    changed = jax.tree.map(lambda p: p + 1, nnx.state(flax.layer))
    nnx.update(ours.layer, changed)
    nnx.update(flax.layer, nnx.state(ours.layer))
    np.testing.assert_array_equal(ours(x), flax(x))
    kernel = nnx.to_pure_dict(changed)["kernel"]
    np.testing.assert_array_equal(flax.layer.kernel[...], kernel)


def test_gradients_equal_those_of_flax_times_mask(face, rng, implementation):
    x = image(rng)
    masked, params = face.masked(implementation=implementation).pure()
    dense, _ = face.flax().pure()
    mask = mask_for(x, rng)
    base, weight = image(rng, (2, 9, 11, OUT)), image(rng, (2, 9, 11, OUT))

    def ours(params, x, base):
        return (masked(params, x, mask, base=base) * weight).sum()

    def flax(params, x, base):
        return (jnp.where(mask[..., None], dense(params, x), base) * weight).sum()

    def assert_close(a, b):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)

    got = jax.jit(jax.grad(ours, (0, 1, 2)))(params, x, base)
    want = jax.grad(flax, (0, 1, 2))(params, x, base)
    assert [a.shape for a in jax.tree.leaves(got)] == [a.shape for a in jax.tree.leaves(want)]
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert_close(a, b)
    check_grads(lambda x: masked(params, x, mask), (x,), 1, modes=["rev"], rtol=2e-2, atol=2e-2)


def test_one_compile_serves_every_mask(face, rng):
    call, params = face.masked(activation="relu").pure()
    traces = []

    @jax.jit
    def jitted(params, x, mask):
        traces.append(mask)
        return call(params, x, mask)

    x = image(rng)
    for density in (0.0, 0.3, 1.0):
        mask = mask_for(x, rng, density)
        got = jitted(params, x, mask)
        np.testing.assert_allclose(got, call(params, x, mask), rtol=1e-6, atol=1e-6)
    assert len(traces) == 1


# Not in the op suite: a layer, and its parameters.
def test_vmap_over_masks(face, rng):
    call, params = face.masked().pure()
    x = image(rng)
    masks = jnp.asarray(rng.random((3, 2, 9, 11)) < 0.5)
    got = jax.vmap(call, in_axes=(None, None, 0))(params, x, masks)
    for y, mask in zip(got, masks, strict=True):
        np.testing.assert_allclose(y, call(params, x, mask), rtol=1e-5, atol=1e-5)


def test_bfloat16_policy(face, rng):
    x = image(rng)
    ours, flax = face.masked(dtype=jnp.bfloat16), face.flax(dtype=jnp.bfloat16)
    y = flax(x)
    mask = mask_for(y, rng)
    got = ours(x, mask)
    assert got.dtype == y.dtype == jnp.bfloat16
    parameters = jax.tree.leaves(ours.pure()[1])
    assert {p.dtype for p in parameters} == {np.dtype(np.float32)}
    wide = expected(y.astype(jnp.float32), mask)
    np.testing.assert_allclose(got.astype(jnp.float32), wide, rtol=2e-2, atol=2e-2)
    gradient = jax.grad(lambda p: face_sum(ours, p, x, mask))(ours.pure()[1])
    assert {p.dtype for p in jax.tree.leaves(gradient)} == {np.dtype(np.float32)}


def face_sum(face, params, x, mask):
    return face.pure()[0](params, x, mask).astype(jnp.float32).sum()


def test_dtype_is_inferred_as_in_flax(face, rng):
    x = image(rng, dtype=jnp.bfloat16)
    mask = jnp.ones(x.shape[:-1], bool)
    options = {"param_dtype": jnp.bfloat16}
    assert face.masked(**options)(x, mask).dtype == face.flax(**options)(x).dtype == jnp.bfloat16


def test_preferred_element_type(rng):
    options = {"dtype": jnp.bfloat16, "preferred_element_type": jnp.float32, "use_bias": False}
    x = image(rng)
    y = Nnx.flax(**options)(x)
    mask = mask_for(y, rng)
    got = Nnx.masked(**options)(x, mask)
    assert got.dtype == y.dtype == jnp.float32
    np.testing.assert_allclose(got, expected(y, mask), rtol=1e-4, atol=1e-4)


def test_masks_of_channels(face, rng):
    """Alone, at every pixel, and with a mask of pixels; the other features are base."""
    layer, dense, x = face.masked(), face.flax(), image(rng)
    ins, outs = jnp.asarray([True, False, True, True]), jnp.arange(OUT) % 2 == 0
    y = dense(jnp.where(ins, x, 0))
    base, mask = image(rng, y.shape), mask_for(y, rng)
    wild = jnp.where(ins, x, jnp.nan)
    got = layer(wild, in_channels=ins, out_channels=outs, base=base)
    np.testing.assert_allclose(got, np.where(outs, y, base), atol=1e-5)
    got = layer(wild, mask, in_channels=ins, out_channels=outs)
    np.testing.assert_allclose(got, np.where(outs, expected(y, mask), 0), atol=1e-5)
