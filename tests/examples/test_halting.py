"""The transformer whose tokens halt: packed equals masked, and the demo at its small size."""

import functools
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples.test_demos import check_picture

#: Of the largest logit, in float32: sums are in another order. A GPU multiplies in TF32.
TOLERANCE = 2e-2 if jax.default_backend() == "gpu" else 1e-5


@pytest.fixture
def small(examples):
    """(module, sizes, parameters with scores that differ, canvases)."""
    model = importlib.import_module("models.halting")
    config = model.Config(32, ((8, 8, 32),), 1, 4)
    params, rng = model.initial(config), np.random.default_rng(0)
    for layer in params["layers"]:
        layer["halt"]["w"] = jnp.asarray(rng.standard_normal(32) * 0.3, jnp.float32)
        layer["halt"]["b"] = jnp.float32(-0.5)
    return model, config, params, jnp.asarray(rng.random((3, 32, 32, 3)), jnp.float32)


def test_packed_equals_masked(small):
    """At learned depths and at given ones: none, all, and an image that halts at once."""
    model, config, params, images = small
    calls = {f: jax.jit(functools.partial(model.run, config, f)) for f in ("masked", "packed")}
    rng, shape = np.random.default_rng(1), (3, config.tokens)
    mixed = rng.integers(1, config.layers + 1, shape)
    mixed[1] = 1
    given = [None, mixed, np.full(shape, 1), np.full(shape, config.layers)]
    seen = []
    for depths in given:
        if depths is not None:
            depths[:, 0] = config.layers
            depths = jnp.asarray(depths, jnp.int32)
        want, got = (calls[form](params, images, depths) for form in ("masked", "packed"))
        np.testing.assert_array_equal(got.depths, want.depths)
        if depths is not None:
            np.testing.assert_array_equal(got.depths, depths)
        bound = TOLERANCE * float(jnp.abs(want.logits).max())
        np.testing.assert_allclose(got.logits, want.logits, rtol=0, atol=bound)
        seen.append(len(np.unique(got.depths)))
    assert seen[0] > 1  # the scores halt some tokens sooner than others
    dense = model.run(config, "dense", params, images)
    np.testing.assert_allclose(dense.logits, want.logits, rtol=0, atol=bound)


def test_scores_learn_from_the_loss(small):
    """The heads that halt get gradients from the labels and from the penalty."""
    _, config, params, images = small
    demo = importlib.import_module("halting_vit")
    loss = functools.partial(demo.loss_of, config, True)
    gradient = jax.jit(jax.grad(loss))(params, images, jnp.arange(3))
    for layer in gradient["layers"][:-1]:  # the last layer's scores halt nothing
        assert jnp.isfinite(layer["halt"]["w"]).all()
        assert (layer["halt"]["w"] != 0).any()


@pytest.mark.parametrize(("mean", "layers"), [(0.5, 12), (0.3, 12), (0.5, 6)])
def test_curves_have_their_mean(examples, mean, layers):
    demo = importlib.import_module("halting_vit")
    shares = demo.curve(mean, layers)
    assert shares[0] == 1
    assert (np.diff(shares) < 0).all()
    assert shares.mean() == pytest.approx(mean)
    drawn = demo.drawn_depths(shares, (200, 100))
    assert drawn.min() >= 1
    assert drawn[:, 1:].mean() / layers == pytest.approx(mean, abs=0.02)


@pytest.mark.parametrize("side", [64, 128, 480])
def test_canvases(examples, side):
    data = importlib.import_module("models.canvases")
    canvases = data.Canvases(side)
    images, labels = canvases.batch("test", 3, np.random.default_rng(0))
    assert images.shape == (3, side, side, 3)
    assert images.dtype == np.float32
    assert 0 <= images.min() < images.max() <= 1
    assert set(labels) <= set(range(10))
    again, _ = canvases.batch("test", 3, np.random.default_rng(0))
    np.testing.assert_array_equal(images, again)


def test_the_demo(examples, tmp_path, capsys):
    demo = importlib.import_module("halting_vit")
    with jax.numpy_dtype_promotion("standard"):  # optax raises a float to an int32 count
        result = demo.main(["--quick", "--sizes", "tiny", "--out", str(tmp_path)])
    assert result.different == 0
    assert result.error <= TOLERANCE
    assert result.accuracy["masked"] == result.accuracy["packed"]
    assert [row.curve for row in result.rows] == ["mean 0.5", "mean 0.3", "learned"]
    for row in result.rows:
        assert set(row.times) == set(row.memory) == set(demo.FORMS)
        assert min(row.times.values()) > 0
        assert 0 < row.share <= 1
    check_picture(result.picture)
    assert "greatest difference of a logit" in capsys.readouterr().out
