"""Layers that record, and `Sequential`, which hands recorders on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from flax import linen, nnx
from layers import Linen, Nnx, image

import jaxsparse as js
from jaxsparse import nn

RNG = np.random.default_rng(0)
#: On a GPU variants round to TF32.
LIMIT = 1e-4 if jax.default_backend() == "cpu" else 2e-2
WEIGHTS = [sp.random(16, 16, 0.3, random_state=i, dtype=np.float32) for i in range(3)]
LAYERS = [js.bounded.inspect(w, -0.1, 1.0) for w in WEIGHTS]
ACTS = jnp.asarray(RNG.random((5, 16)) * (RNG.random((5, 1)) < 0.6), jnp.float32)
MASK = jnp.asarray(RNG.random((2, 9, 11)) < 0.6)


def of_both(make):
    """A layer of linen, without variables, and of nnx, as functions."""
    layer = make(nn.linen)
    assert layer.init(jax.random.key(0), ACTS) == {}
    return [lambda x: layer.apply({}, x), make(nn.nnx)]


def test_bounded_dense_takes_and_gives_activations():
    want = js.bounded_matmul(js.bounded_matmul(ACTS, LAYERS[0]), LAYERS[1])
    for first in of_both(lambda face: face.BoundedDense(LAYERS[0])):
        for second in of_both(lambda face: face.BoundedDense(LAYERS[1])):
            got = second(first(ACTS))
            assert isinstance(got, js.bounded.Activations)
            np.testing.assert_array_equal(got.materialize(), want.materialize())
            np.testing.assert_array_equal(got.recorder.codes, want.recorder.codes)


def test_bounded_dense_of_weights():
    bias = RNG.standard_normal(16).astype(np.float32)
    dense = WEIGHTS[0].toarray()
    want = np.clip(np.asarray(ACTS) @ dense + bias, 0, 2)
    for weight in (WEIGHTS[0], dense, nnx.Param(jnp.asarray(dense))):
        for run in of_both(lambda face, w=weight: face.BoundedDense(w, bias=bias, upper=2.0)):
            np.testing.assert_allclose(run(ACTS).materialize(), want, rtol=LIMIT, atol=LIMIT)
    plain = nn.nnx.BoundedDense(dense, upper=2.0, record=False)(ACTS)
    want = np.clip(np.asarray(ACTS) @ dense, 0, 2)
    np.testing.assert_allclose(plain.values, want, rtol=LIMIT, atol=LIMIT)


def test_bounded_dense_under_transforms():
    layer = nn.nnx.BoundedDense(LAYERS[0], rngs=nnx.Rngs(0))
    assert jax.tree.leaves(nnx.state(layer, nnx.Param)) == []
    want = layer(ACTS).materialize()
    np.testing.assert_array_equal(nnx.jit(lambda m, x: m(x).materialize())(layer, ACTS), want)
    graph, state = nnx.split(layer)
    np.testing.assert_array_equal(nnx.merge(graph, state)(ACTS).materialize(), want)
    found = jax.grad(lambda x: layer(x).materialize().sum())(ACTS)
    own = jax.grad(lambda x: js.bounded_matmul(x, LAYERS[0]).materialize().sum())(ACTS)
    np.testing.assert_allclose(found, own, rtol=1e-6, atol=1e-6)


WRONG = {
    "none": ((None,), {}, TypeError, "^layer is None"),
    "upper": ((WEIGHTS[0],), {}, ValueError, "^upper is None"),
    "both": ((LAYERS[0],), {"upper": 1.0}, ValueError, "^upper is part of a js.bounded.Layer"),
    "bias": ((LAYERS[0], 1.0), {}, ValueError, "^bias is part of a js.bounded.Layer"),
    "stack": ((js.bounded.stack(LAYERS[:2]),), {}, ValueError, "^layer is a stack"),
    "dataflow": ((LAYERS[0],), {"dataflow": "z"}, ValueError, "^dataflow='z'"),
    "segment": ((LAYERS[0],), {"segment": 0}, ValueError, "^segment=0"),
    "record": ((LAYERS[0],), {"record": 1}, TypeError, "^record"),
    "shape": ((np.ones(3), 0.0, 1.0), {}, TypeError, "^weight must be a matrix"),
}


@pytest.mark.parametrize("name", WRONG)
def test_bounded_dense_refuses(name):
    args, options, error, words = WRONG[name]
    for face in (nn.linen, nn.nnx):
        with pytest.raises(error, match=words):
            face.BoundedDense(*args, **options)


@pytest.mark.parametrize("segment", [True, 2])
def test_a_convolution_records(face, rng, segment, implementation):
    options = {"activation": "relu6", "implementation": implementation}
    layer, plain = face.masked(record=segment, **options), face.masked(**options)
    x = image(rng) * 4
    for mask in (MASK, js.tile_index(MASK, (2, 2)), None):
        got, recorder = layer(x, mask)
        np.testing.assert_array_equal(got, plain(x, mask))
        want = js.recorder.probe(got, recorder.segment, 6.0)
        np.testing.assert_array_equal(recorder.codes, want.codes)
        assert recorder.segment == (6 if segment is True else 2)
        assert recorder.stored


def test_a_convolution_does_not_read_what_is_decided(face, rng):
    plain = face.masked()
    whole = jnp.where(
        jnp.asarray(rng.random((2, 3, 9, 11, 1)) < 0.5), image(rng, (2, 3, 9, 11, 4)), 0
    )
    recorder = js.recorder.probe(whole, 4, 6.0)
    assert (recorder.codes == js.recorder.ZERO).any()
    spoiled = jnp.where(recorder.spread(4) == js.recorder.MIXED, whole, jnp.nan)
    mask = jnp.asarray(rng.random((2, 3, 9, 11)) < 0.7)
    for each in (mask, None):
        got = plain(spoiled, each, recorder=recorder)
        np.testing.assert_allclose(got, plain(whole, each), rtol=LIMIT, atol=LIMIT)
    with pytest.raises(ValueError, match=r"^recorder has codes"):
        plain(whole[..., :8, :], None, recorder=recorder)


class Dtyped(nn.linen.Sequential):
    """As `layers.Linen` draws parameters."""

    param_dtype = jnp.float32


def convolutions(face):
    options = {"activation": "relu6", "record": True}
    if face is Linen:
        own = [nn.linen.MaskedConv(6, (3, 3), **options), nn.linen.MaskedConv(5, (3, 3), **options)]
        return Linen(Dtyped(own), (2, 9, 11, 4))
    rngs = nnx.Rngs(0)
    own = [
        nn.nnx.MaskedConv(4, 6, (3, 3), rngs=rngs, **options),
        nn.nnx.MaskedConv(6, 5, (3, 3), rngs=rngs, **options),
    ]
    return Nnx(nn.nnx.Sequential(*own))


def test_sequential_hands_recorders_on(face, rng, monkeypatch):
    seen = []
    own = js.ops.masked_conv

    def watched(*args, **options):
        seen.append(options.get("recorder"))
        return own(*args, **options)

    monkeypatch.setattr(nn.conv, "masked_conv", watched)
    model = convolutions(face)
    seen.clear()
    got, recorder = model(image(rng) * 3, MASK)
    first, second = seen
    assert first is None
    assert isinstance(second, js.recorder.Recorder)
    assert second.codes.shape == (2, 9, 11, 1)
    want = js.recorder.probe(got, recorder.segment, 6.0)
    np.testing.assert_array_equal(recorder.codes, want.codes)


def test_linen_sequential_has_the_parameters_of_flax(rng):
    model = convolutions(Linen)
    flax = linen.Sequential([linen.Conv(6, (3, 3)), linen.Conv(5, (3, 3))])
    params = flax.init(jax.random.key(0), jnp.zeros((2, 9, 11, 4)))
    assert jax.tree.structure(params) == jax.tree.structure(model.params)
    x = image(rng)
    got, _ = model.layer.apply(params, x)
    y = x
    for name in ("layers_0", "layers_1"):
        features = params["params"][name]["bias"].shape[0]
        y = jax.nn.relu6(linen.Conv(features, (3, 3)).apply({"params": params["params"][name]}, y))
    np.testing.assert_allclose(got, y, rtol=LIMIT, atol=LIMIT)


def test_sequential_of_mixed_layers(rng):
    """A mask for each layer, functions between them, and a running average."""
    rngs = nnx.Rngs(0)
    conv = nn.nnx.MaskedConv(4, 6, (3, 3), strides=2, activation="relu6", record=True, rngs=rngs)
    norm, head = nn.nnx.MaskedNorm(6, rngs=rngs), nnx.Linear(6, 3, rngs=rngs)
    model = nn.nnx.Sequential(conv, norm, jax.nn.relu, head)
    small = js.mask.propagate(MASK, (3, 3), 2)
    x = image(rng)
    got = model(x, [small, small, None, None], use_running_average=True)
    want = head(jax.nn.relu(norm(conv(x, small)[0], small, True)))
    np.testing.assert_array_equal(got, want)
    with pytest.raises(ValueError, match=r"^mask has 2 entries; Sequential has 4 layers"):
        model(x, [small, small])
    with pytest.raises(TypeError, match=r"^mask\[2\] is for relu, which takes none"):
        model(x, [small, small, small, None])


def test_sequential_of_bounded_layers():
    want = ACTS
    for layer in LAYERS:
        want = js.bounded_matmul(want, layer)
    model = nn.linen.Sequential([nn.linen.BoundedDense(layer) for layer in LAYERS])
    got = model.apply({}, ACTS)
    np.testing.assert_array_equal(got.recorder.codes, want.recorder.codes)
    np.testing.assert_array_equal(got.materialize(), want.materialize())
    layers = [nn.nnx.BoundedDense(layer) for layer in LAYERS]
    ended = nn.nnx.Sequential(*layers, lambda y: y * 2)
    np.testing.assert_array_equal(ended(ACTS), want.materialize() * 2)


def test_sequential_without_layers():
    with pytest.raises(ValueError, match=r"^Sequential has no layers"):
        nn.nnx.Sequential()(ACTS)
