"""`MaskedNorm` of linen and nnx against flax's own normalisations, given flax's mask."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx
from flax import serialization as flax_serialization
from jax.sharding import Mesh, PartitionSpec

import jaxsparse as js
from jaxsparse import nn

RNG = np.random.default_rng(0)
X = jnp.asarray(RNG.standard_normal((3, 5, 4, 8)) * 2 + 1, jnp.float32)
MASK = jnp.asarray(RNG.random((3, 5, 4)) < 0.5)
SCALE = jnp.asarray(RNG.random(8) + 0.5, jnp.float32)
BIAS = jnp.asarray(RNG.standard_normal(8), jnp.float32)
OWN = {  # kind -> flax's layers, and the options of both
    "batch": (linen.BatchNorm, nnx.BatchNorm, {}),
    "group": (linen.GroupNorm, nnx.GroupNorm, {"num_groups": 2}),
    "layer": (linen.LayerNorm, nnx.LayerNorm, {}),
}


def masked(y):
    return np.where(np.asarray(MASK)[..., None], y, 0.0)


def spread(kind):
    """The mask as flax's own layers take it."""
    mask = MASK if kind != "layer" else jnp.ones_like(MASK)
    return jnp.broadcast_to(mask[..., None], X.shape)


def with_values(params):
    return params | {"scale": SCALE, "bias": BIAS}


@pytest.mark.parametrize("kind", OWN)
@pytest.mark.parametrize("mask", ["mask", "index", "none"])
def test_linen_equals_flax(kind, mask):
    own, _, options = OWN[kind]
    stored = {"use_running_average": False} if kind == "batch" else {}
    ours, theirs = nn.linen.MaskedNorm(kind=kind, **options), own(**options)
    first = ours.init(jax.random.key(0), X, None, **stored)
    variables = theirs.init(jax.random.key(0), X, **stored)
    assert jax.tree.structure(first) == jax.tree.structure(variables)
    jax.tree.map(np.testing.assert_array_equal, first, variables)
    variables = {**variables, "params": with_values(variables["params"])}
    loaded = flax_serialization.from_bytes(first, flax_serialization.to_bytes(variables))
    given = {"mask": MASK, "index": js.tile_index(MASK, (1, 1)), "none": None}[mask]
    kept = None if mask == "none" else spread(kind)
    options = {**stored, "mutable": ["batch_stats"]}
    want, averages = theirs.apply(variables, X, mask=kept, **options)
    got, moved = ours.apply(loaded, X, given, **options)
    want = want if mask == "none" else masked(want)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    assert jax.tree.structure(moved) == jax.tree.structure(averages)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), moved, averages)
    if kind == "batch":
        assert not np.allclose(moved["batch_stats"]["mean"], 0)
        after = {**variables, **moved}
        want = theirs.apply(after, X, use_running_average=True)
        got = ours.apply(after, X, given, use_running_average=True)
        np.testing.assert_allclose(got, want if mask == "none" else masked(want), rtol=1e-4)


@pytest.mark.parametrize("kind", OWN)
def test_nnx_equals_flax(kind):
    _, own, options = OWN[kind]
    ours = nn.nnx.MaskedNorm(8, kind=kind, **options, rngs=nnx.Rngs(0))
    theirs = own(8, **options, rngs=nnx.Rngs(0))
    assert jax.tree.structure(nnx.state(ours)) == jax.tree.structure(nnx.state(theirs))
    theirs.scale[...], theirs.bias[...] = SCALE, BIAS
    nnx.update(ours, nnx.state(theirs))
    np.testing.assert_allclose(
        ours(X, MASK), masked(theirs(X, mask=spread(kind))), rtol=1e-4, atol=1e-4
    )
    for a, b in zip(*(jax.tree.leaves(nnx.state(m)) for m in (ours, theirs)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    ours.eval()
    theirs.eval()
    before = nnx.to_pure_dict(nnx.state(ours))
    want = theirs(X) if kind == "batch" else theirs(X, mask=spread(kind))
    np.testing.assert_allclose(ours(X, MASK), masked(want), rtol=1e-4, atol=1e-4)
    jax.tree.map(np.testing.assert_array_equal, before, nnx.to_pure_dict(nnx.state(ours)))


@jax.numpy_dtype_promotion("standard")  # flax's own layers need it
@pytest.mark.parametrize("param_dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("dtype", [None, jnp.bfloat16, jnp.float32])
@pytest.mark.parametrize("kind", OWN)
def test_the_dtype_of_the_result_is_that_of_flax(kind, dtype, param_dtype):
    x = X.astype(jnp.bfloat16)
    for place, module in enumerate((linen, nnx)):
        own, given = OWN[kind][place], {**OWN[kind][2], "dtype": dtype, "param_dtype": param_dtype}
        if module is nnx:
            ours = nn.nnx.MaskedNorm(8, kind=kind, **given, rngs=nnx.Rngs(0))
            got, want = ours(x, MASK), own(8, **given, rngs=nnx.Rngs(0))(x)
        else:
            more = {"use_running_average": False} if kind == "batch" else {}
            got, _ = nn.linen.MaskedNorm(kind=kind, **given, **more).init_with_output(
                jax.random.key(0), x, MASK
            )
            want, _ = own(**given, **more).init_with_output(jax.random.key(0), x)
        assert got.dtype == want.dtype
        wide = [np.asarray(v, np.float32) for v in (got, masked(want))]
        if kind == "layer":  # the others have statistics of other positions
            np.testing.assert_allclose(*wide, rtol=3e-2, atol=3e-2)


def test_base_and_nan_outside_of_the_mask():
    norm = nn.nnx.MaskedNorm(8, rngs=nnx.Rngs(0))
    base = jnp.full_like(X, 7.0)
    spoiled = jnp.where(MASK[..., None], X, jnp.nan)
    got = norm(spoiled, MASK, base=base)
    assert np.isfinite(got).all()
    assert (np.asarray(got)[~np.asarray(MASK)] == 7).all()
    assert np.isfinite(norm.mean[...]).all()


def test_a_batch_without_active_positions_leaves_the_averages():
    norm = nn.nnx.MaskedNorm(8, rngs=nnx.Rngs(0))
    norm(X, MASK)
    before = np.asarray(norm.mean[...]), np.asarray(norm.var[...])
    assert (np.asarray(norm(X, jnp.zeros_like(MASK))) == 0).all()
    np.testing.assert_array_equal(norm.mean[...], before[0])
    np.testing.assert_array_equal(norm.var[...], before[1])


def test_training_under_jit_and_grad():
    @nnx.jit
    def step(model, x, mask):
        return nnx.grad(lambda m: (m(x, mask) ** 2).sum())(model)

    model = nn.nnx.MaskedNorm(8, momentum=0.5, rngs=nnx.Rngs(0))
    model.scale[...] = SCALE
    found = step(model, X, MASK)

    def plain(scale):
        return (js.masked_norm(X, MASK, scale=scale, bias=jnp.zeros(8)) ** 2).sum()

    np.testing.assert_allclose(found["scale"][...], jax.grad(plain)(SCALE), rtol=1e-4)
    active = np.asarray(X)[np.asarray(MASK)]
    np.testing.assert_allclose(model.mean[...], active.mean(0) / 2, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(model.var[...], 0.5 + active.var(0) / 2, rtol=1e-4)


@pytest.mark.skipif(jax.device_count() < 3, reason="needs three devices")
def test_statistics_over_a_mapped_axis():
    ours = nn.linen.MaskedNorm(use_running_average=False, axis_name="i")
    alone = nn.linen.MaskedNorm(use_running_average=False)
    variables = ours.init(jax.random.key(0), X, MASK)
    split, whole = PartitionSpec("i"), PartitionSpec()

    def run(variables, x, mask):
        return ours.apply(variables, x, mask, mutable=["batch_stats"])

    mapped = jax.shard_map(
        run,
        mesh=Mesh(np.asarray(jax.devices()[:3]), ("i",)),
        in_specs=(whole, split, split),
        out_specs=(split, whole),
    )
    got, moved = jax.jit(mapped)(variables, X, MASK)
    want, stats = alone.apply(variables, X, MASK, mutable=["batch_stats"])
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), moved, stats)


WRONG = {
    "kind": ({"kind": "instance"}, ValueError, "^kind='instance' is not one of"),
    "both": ({"kind": "group", "group_size": 2}, ValueError, "^num_groups=32 and group_size=2"),
    "num_groups": ({"num_groups": 0}, ValueError, "^num_groups=0"),
    "momentum": ({"momentum": 2}, ValueError, "^momentum=2"),
    "epsilon": ({"epsilon": 0.0}, ValueError, "^epsilon=0.0"),
    "axis_name": ({"kind": "layer", "axis_name": "i"}, ValueError, "^axis_name='i' is for"),
    "dtype": ({"dtype": "z"}, TypeError, "^dtype='z'"),
    "implementation": ({"implementation": "z"}, ValueError, "^implementation='z'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_options(name):
    options, error, words = WRONG[name]
    with pytest.raises(error, match=words):
        nn.linen.MaskedNorm(**options)
    with pytest.raises(error, match=words):
        nn.nnx.MaskedNorm(8, **options, rngs=nnx.Rngs(0))


def test_wrong_calls():
    norm = nn.nnx.MaskedNorm(8, rngs=nnx.Rngs(0))
    with pytest.raises(TypeError, match=r"^mask"):
        norm(X, False)  # flax's order
    with pytest.raises(TypeError, match=r"^use_running_average must be a bool"):
        norm(X, None, MASK)
    with pytest.raises(ValueError, match=r"^inputs has 4 channels; num_features=8"):
        norm(X[..., :4], MASK)
    with pytest.raises(ValueError, match=r"^base is float32"):
        norm(X, MASK, base=jnp.zeros(8))
    with pytest.raises(ValueError, match=r"^use_running_average is None"):
        nn.nnx.MaskedNorm(8, use_running_average=None, rngs=nnx.Rngs(0))(X)
    groups = nn.nnx.MaskedNorm(8, kind="group", num_groups=3, rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match=r"^num_groups=3 does not divide inputs' 8 channels"):
        groups(X, MASK)
