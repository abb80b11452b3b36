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

FORMS = ("dense", "multiplied", "sparse")
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


@pytest.fixture
def training(examples):
    return importlib.import_module("models.resnet20.training")


@pytest.fixture
def network(examples):
    return importlib.import_module("models.resnet20.network")


def with_ranges(network, config, params, images):
    """The parameters with ranges, each a half of the largest value: some values are clipped."""
    params = network.with_ranges(config, params, images)
    for block in params["blocks"]:
        block["ranges"] = block["ranges"] / 2
    return params


@pytest.mark.parametrize("bits", [None, 4])
def test_gates_learn_from_the_loss(model, training, network, bits):
    gated = importlib.import_module("models.gated")
    config, params, images = small(model, False)
    if bits:
        params = with_ranges(network, config, params, images)
    noise = gated.Noise(jax.random.key(0), jnp.float32(1.0))
    stage = training.Stage("gated", 1, 1e-3, gated=True, noisy=True, bits=bits)
    loss = functools.partial(training.loss_of, config, stage, 0.3)
    gradient = jax.jit(jax.grad(loss))(params, images, jnp.arange(3), noise)
    for block in gradient["blocks"]:
        assert jnp.isfinite(block["gate"]["w"]).all()
        assert (block["gate"]["w"] != 0).all()
        if bits:
            assert (block["ranges"] != 0).all()


def test_rounding_to_few_bits(examples):
    fake = importlib.import_module("models.resnet20.fake_quantised")
    x = jnp.asarray([0.0, 0.4, 0.6, 14.6, 15.0, 40.0])
    np.testing.assert_allclose(fake.activations(x, jnp.float32(15), 4), [0, 0, 1, 15, 15, 15])
    w = jnp.asarray([[-7.0, 0.5], [3.4, 0.7], [2.6, -0.04]])
    np.testing.assert_allclose(fake.kernel(w, 4), [[-7, 0.5], [3, 0.7], [3, 0]], atol=1e-6)
    slope, limit = jax.grad(lambda x, r: fake.activations(x, r, 4).sum(), (0, 1))(
        x, jnp.float32(14.8)
    )
    np.testing.assert_array_equal(slope, [1, 1, 1, 1, 0, 0])
    assert limit == 2  # as many values are clipped


@pytest.mark.parametrize("bits", [4, 8])
def test_few_bits_in_all_forms(model, network, bits):
    """Rounding turns tiny differences into steps of the range: of four bits a fifteenth."""
    fake = importlib.import_module("models.resnet20.fake_quantised")
    config, params, images = small(model, False)
    ranged = with_ranges(network, config, params, images)
    few = fake.parameters(ranged, bits)
    assert len(np.unique(few["blocks"][0]["convs"][0]["w"][..., 0])) <= 2**bits - 1
    run = {form: jax.jit(functools.partial(model.run, config, form, bits=bits)) for form in FORMS}
    plain = model.run(config, "multiplied", params, images).logits
    want, got = (run[form](few, images) for form in ("multiplied", "sparse"))
    assert np.mean([(a != b).mean() for a, b in zip(got.masks, want.masks, strict=True)]) < 0.01
    bound = float(jnp.abs(want.logits).max()) / 2**bits
    np.testing.assert_allclose(got.logits, want.logits, rtol=0, atol=bound)
    assert jnp.abs(want.logits - plain).max() > 0  # the values are rounded


def test_normalisation_folds(model):
    """The folded parameters give the normalised network's logits for the same images."""
    normalised = importlib.import_module("models.resnet20.normalised")
    config, params, images = small(model, False)
    logits, folded = normalised.run(config, normalised.with_gains(params), images)
    got = model.run(config, "dense", folded, images).logits
    np.testing.assert_allclose(got, logits, rtol=0, atol=1e-4 * float(jnp.abs(logits).max()))
    assert jax.tree.structure(folded) == jax.tree.structure(params)


def test_every_stage_trains_and_is_stored(model, network, training, monkeypatch, tmp_path):
    monkeypatch.delenv("JAXSPARSE_DATA", raising=False)
    monkeypatch.setattr(training, "BATCH", 2)
    monkeypatch.setattr(training, "FOLDED", 4)
    config = model.Config("small", 64, ((1, 8, 1), (1, 16, 2)), False, 5, False, 10, 4)
    canvases = importlib.import_module("models.canvases").Canvases(64)
    with jax.numpy_dtype_promotion("standard"):  # optax raises a float to an int32 count
        networks = network.trained(config, canvases, 2)
    assert set(networks) == {"dense", *network.BITS}
    network.store(networks, tmp_path / "weights.npz")
    got = network.load(config, tmp_path / "weights.npz")
    assert jax.tree.structure(got) == jax.tree.structure(networks)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(networks), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6)
    changed = [np.asarray(networks[name]["stem"]["w"]) for name in networks]
    assert all((changed[0] != other).any() for other in changed[1:])


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
    result = demo.main(["--quick", "--out", str(tmp_path)])
    assert set(result.seen.gated) == {"float32", "int8", "int4"}
    for found in result.seen.gated.values():
        assert found.right.shape == result.seen.dense.shape == (32,)
        assert found.shares.shape == (9,)
        assert 0.2 < found.shares.mean() < 0.6  # the stored gates close pixels
        assert set(found.times) == set(demo.FORMS)
    assert result.seen.gated["float32"].moved == 0 < result.seen.gated["int4"].moved
    assert [row.density for row in result.rows] == list(demo.DENSITIES)
    for row in result.rows:
        assert set(row.times) == set(row.memory) == set(demo.FORMS)
        assert min(row.times.values()) > 0
    check_picture(result.picture)
    assert "open pixels by block" in " ".join(capsys.readouterr().out.split())
