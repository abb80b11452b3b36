"""The gated residual networks: sparse equals masked dense, gates learn, and the demo at its small
size.
"""

import functools
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples.test_demos import check_picture

TOLERANCE = 2e-2 if jax.default_backend() == "gpu" else 1e-5


@pytest.fixture
def model(examples):
    return importlib.import_module("models.gated_resnet")


def small(model, bottleneck):
    """(sizes, parameters whose gates close some pixels, images)."""
    config = model.Config("small", 32, ((2, 8, 1), (1, 16, 2)), bottleneck, 3, bottleneck, 10)
    params, rng = model.initial(config), np.random.default_rng(0)
    for block in params["blocks"]:
        shape = block["gate"]["w"].shape
        block["gate"]["w"] = jnp.asarray(rng.standard_normal(shape), jnp.float32)
        block["convs"][-1]["b"] = jnp.asarray(rng.standard_normal(), jnp.float32) * jnp.ones(
            block["convs"][-1]["b"].shape
        )
    return config, params, jnp.asarray(rng.random((3, 32, 32, 3)), jnp.float32)


@pytest.mark.parametrize("bottleneck", [False, True])
def test_sparse_equals_multiplied(model, bottleneck):
    """With its own masks and with given ones: none, some, and all, which is the dense network."""
    config, params, images = small(model, bottleneck)
    run = {form: jax.jit(functools.partial(model.run, config, form)) for form in model.FORMS}
    some = [jnp.asarray(m) for m in model.drawn_masks(config, 3, 0.3)]
    seen = []
    for given in (None, some, [m & False for m in some], [m | True for m in some]):
        want, got = (run[form](params, images, given) for form in ("multiplied", "sparse"))
        bound = TOLERANCE * float(jnp.abs(want.logits).max())
        np.testing.assert_allclose(got.logits, want.logits, rtol=0, atol=bound)
        for a, b in zip(got.masks, want.masks, strict=True):
            np.testing.assert_array_equal(a, b)
        seen.append((float(np.mean([m.mean() for m in got.masks])), want.logits))
    assert 0 < seen[0][0] < 1
    assert [share for share, _ in seen[2:]] == [0, 1]
    dense = run["dense"](params, images).logits
    np.testing.assert_allclose(seen[-1][1], dense, rtol=0, atol=bound)
    assert np.abs(seen[1][1] - dense).max() > bound  # the masks matter


def test_gates_learn_from_the_loss(model):
    demo = importlib.import_module("gated_resnet")
    gated = importlib.import_module("models.gated")
    config, params, images = small(model, False)
    noise = gated.Noise(jax.random.key(0), jnp.float32(1.0))
    loss = functools.partial(demo.loss_of, config, 0.3)
    gradient = jax.jit(jax.grad(loss))(params, images, jnp.arange(3), noise)
    for block in gradient["blocks"]:
        assert jnp.isfinite(block["gate"]["w"]).all()
        assert (block["gate"]["w"] != 0).all()


def test_drawn_masks_have_their_density(model):
    config = model.resnet(50)
    assert config.sizes(224) == [56] * 3 + [28] * 4 + [14] * 6 + [7] * 3
    masks = model.drawn_masks(config, 2, 0.3)
    assert [m.shape for m in masks] == [(2, n, n) for n in config.sizes(224)]
    for mask in masks:
        assert mask.mean() == pytest.approx(0.3, abs=0.01)
    changes = (masks[0][:, 1:] != masks[0][:, :-1]).mean()
    assert changes < 0.1  # regions: of single pixels it would be 0.42


@pytest.mark.parametrize("side", [7, 8])
def test_pooling(model, side):
    x = jnp.asarray(np.random.default_rng(0).random((2, side, side, 4)), jnp.float32)
    sides = (1, 3, 3, 1), (1, 2, 2, 1)
    want = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, *sides, "SAME")
    if side % 2 == 0:
        np.testing.assert_array_equal(model.pooled(x), want)
    else:
        with pytest.raises(ValueError, match="odd"):
            model.pooled(x)


def test_the_demo(examples, tmp_path, capsys):
    demo = importlib.import_module("gated_resnet")
    with jax.numpy_dtype_promotion("standard"):  # optax raises a float to an int32 count
        result = demo.main(["--quick", "--out", str(tmp_path)])
    assert result.different == 0
    assert result.accuracy["multiplied"] == result.accuracy["sparse"]
    assert len(result.shares) == 9
    assert [row.density for row in result.rows] == list(demo.DENSITIES)
    for row in result.rows:
        assert set(row.times) == set(row.memory) == set(demo.FORMS)
        assert min(row.times.values()) > 0
    check_picture(result.picture)
    assert "open pixels by block" in " ".join(capsys.readouterr().out.split())
