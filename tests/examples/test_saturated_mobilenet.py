"""The MobileNetV2 whose ReLU6 records what it saturates, at its small size."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples.test_demos import check_picture

TOLERANCE = 2e-2 if jax.default_backend() == "gpu" else 1e-5


@pytest.mark.parametrize("use_bias", [False, True])
def test_forms_agree(examples, use_bias):
    """On an image with a blank half: without biases the blank pixels are recorded as zero."""
    model = importlib.import_module("models.saturated_mobilenet")
    demo = importlib.import_module("saturated_mobilenet")
    params = model.initial(model.SMALL, use_bias)
    images = np.random.default_rng(0).random((2, 32, 32, 1), np.float32)
    images[:, :16] = 0
    forms = demo.kinds_of(model.SMALL, use_bias, ["block1/depthwise", "block2/expand"])
    given = jnp.asarray(images)
    want, *others = (np.asarray(model.logits_of(form, params, given)) for form in forms.values())
    assert len(others) == 3
    for got in others:
        np.testing.assert_allclose(got, want, rtol=0, atol=TOLERANCE * np.abs(want).max())
    layers = demo.layers_of(forms["dense"], params, given, given, 1)
    assert list(layers) == model.names(model.SMALL)
    assert list(layers) == [
        "block1/expand",
        "block1/depthwise",
        "block2/expand",
        "block2/depthwise",
    ]
    for pair in model.pairs(forms["dense"], params, given).values():
        assert 0 == pair.result.min() < pair.result.max() <= model.UPPER
        want, got = (model.through(pair, record, pair.x) for record in (False, True))
        np.testing.assert_allclose(got, want, rtol=0, atol=TOLERANCE * jnp.abs(want).max())
    if not use_bias:
        assert layers["block1/expand"].decided[0] > 0.3
        assert layers["block2/expand"].skipped > 0.2


def test_shares_of_a_known_layer(examples):
    """Half of the pixels 0, a quarter of the rest at 6 in eight of sixteen channels."""
    demo = importlib.import_module("saturated_mobilenet")
    y = np.ones((1, 4, 8, 16), np.float32)
    y[:, :, :4] = 0
    y[:, :, 4, :8] = 6
    found = demo.layer_of(jnp.asarray(y), 3, 1, 2.0)
    assert found.decided[0] == 0.5
    assert found.decided[8] == pytest.approx(0.5 + 1 / 16)
    assert found.decided[1] == pytest.approx(0.5 + 1 / 16)
    assert found.upper == pytest.approx(1 / 16)
    assert found.skipped == pytest.approx(3 / 8)


def test_the_demo(examples, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("JAXSPARSE_DATA", raising=False)
    demo = importlib.import_module("saturated_mobilenet")
    with jax.numpy_dtype_promotion("standard"):  # optax raises a float to an int32 count
        result = demo.main(["--quick", "--out", str(tmp_path)])
    assert set(result.variants) == {"biases", "no biases"}
    for variant in result.variants.values():
        assert len(variant.layers) == 4
        assert set(variant.times) == set(demo.FORMS[: 4 if variant.selected else 3])
        assert variant.times[variant.chosen] == min(variant.times.values())
        assert min(variant.times.values()) > 0
        assert variant.error <= demo.TOLERANCE or jax.default_backend() == "gpu"
        for layer in variant.layers.values():
            assert layer.decided[0] <= layer.decided[8] <= layer.decided[1]
    check_picture(result.picture)
    assert "The network runs as" in " ".join(capsys.readouterr().out.split())
