"""Both demos at small sizes: what they assert holds, tables are whole, pictures exist."""

import importlib
import itertools
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image


def check_picture(path):
    with Image.open(path) as picture:
        assert picture.format == "PNG"
        assert min(picture.size) > 500
        assert len(set(picture.convert("L").resize((64, 64)).tobytes())) > 20


def check_times(rows, times):
    *parts, rest, whole = rows
    assert rest[-1] == ""
    for row in [*parts, whole]:
        *forms, speedup = row[-4:]
        assert all(float(cell) > 0 for cell in forms)
        assert speedup.endswith("x")
    assert set(times) == {"dense", "multiplied", "sparse"}


def check_legend(printed, *words):
    """The legend explains the columns, and says what the figures were measured on."""
    flat = " ".join(printed.split())
    for word in (*words, "Measured on", " threads", f"jax {jax.__version__}"):
        assert word in flat
    assert flat.count("[ms]") == 3
    assert "…" not in printed


def test_edit_photo(examples, tmp_path, capsys):
    demo = importlib.import_module("edit_photo")
    result = demo.main(["--quick", "--out", str(tmp_path)])
    assert result.sparse_error <= demo.TOLERANCE
    assert result.multiplied_error <= demo.TOLERANCE
    names = [" ".join(row[0].split()) for row in result.rows]
    layers = ["stem", "block 1, each of 2", "down", "blocks 2-6, each of 10", "head"]
    assert names == [*layers, "indices, masks, additions", "whole network"]
    for i in range(-4, -1):  # the rows make the whole, up to their rounding
        *parts, whole = (float(row[i]) for row in result.rows)
        counts = (1, 2, 1, 10, 1, 1)
        assert sum(n * p for n, p in zip(counts, parts, strict=True)) == pytest.approx(
            whole, abs=0.1
        )
    check_times(result.rows, result.times)
    assert result.picture == tmp_path / "edit_photo.png"
    check_picture(result.picture)
    printed = capsys.readouterr().out
    assert "jaxsparse" in printed
    assert "tolerance" in printed
    check_legend(printed, "reached: ", "computed: ")


@pytest.mark.parametrize(
    "name", ["moe_compare", "ragged_encoder", "sparse_training", "sparse_encoder"]
)
def test_help_is_whole(examples, capsys, name):
    """The description, and not its first line only."""
    demo = importlib.import_module(name)
    with pytest.raises(SystemExit):
        demo.main(["--help"])
    assert "".join(demo.__doc__.split()) in "".join(capsys.readouterr().out.split())


def test_the_result_is_scaled_for_display(examples):
    demo = importlib.import_module("edit_photo")
    image = np.random.default_rng(0).normal(5.0, (1.0, 20.0, 0.0), (40, 60, 3))
    shown = demo.to_unit(image)
    assert shown.min() == 0
    assert shown.max() == 1
    assert ((shown == 0) | (shown == 1))[..., :2].mean() < 0.03


def test_an_edit_reaches_only_its_masks(examples):
    """Outside of a layer's mask an edit changes nothing; a stage's mask holds its layers'."""
    network = importlib.import_module("models.edit_network")
    rng = np.random.default_rng(0)
    photo = jnp.asarray(rng.random((1, 48, 64, 3)), jnp.float32)
    edited = np.zeros((1, 48, 64), bool)
    edited[0, 20:24, 5:9] = True
    after = jnp.where(edited[..., None], 1 - photo, photo)
    params = network.make_params()
    run = jax.jit(network.first_pass)
    masks = network.reached(jnp.asarray(edited))
    shared = network.shared_masks(jnp.asarray(edited))
    assert len(shared) == 2
    for stage, mask in enumerate(shared):
        last = [m for layer, m in zip(network.LAYERS, masks, strict=True) if layer.stage == stage]
        assert (mask == last[-1]).all()
    for index, mask in zip(network.shared_indices(jnp.asarray(edited)), shared, strict=True):
        assert (index.to_mask() == mask).all()
    pairs = zip(run(params, photo)[1], run(params, after)[1], masks, strict=True)
    for layer, (a, b, mask) in zip(network.LAYERS, pairs, strict=True):
        changed = (a != b).any(-1)
        assert not (changed & ~mask).any(), layer.name
        assert not (mask & ~shared[layer.stage]).any(), layer.name


def test_an_unknown_form_is_named(examples):
    network = importlib.import_module("models.edit_network")
    with pytest.raises(ValueError, match="form='spars'"):
        network.edit_pass((None, []), [], None, None, "spars")


def test_gated_classifier(examples, tmp_path, capsys):
    demo = importlib.import_module("gated_classifier")
    with jax.numpy_dtype_promotion("standard"):  # optax raises a float to an int32 count
        result = demo.main(["--quick", "--out", str(tmp_path)])
    assert result.different_predictions == 0
    assert result.sparse_accuracy == result.multiplied_accuracy
    assert [row[0] for row in result.rows] == [
        *("block 1", "block 2", "block 3"),
        *("stem, down, pooling, logits", "whole network"),
    ]
    assert len(result.densities) == 3
    check_times(result.rows, result.times)
    check_picture(result.picture)
    printed = capsys.readouterr().out
    assert "masked-dense" in printed
    check_legend(printed, "open: ")


def test_gates_learn_from_the_loss(examples):
    """Every parameter, those of the gates among them, gets a gradient in the sparse form."""
    model = importlib.import_module("models.gated")
    demo = importlib.import_module("gated_classifier")
    from flax import nnx

    classifier = model.Classifier(8, nnx.Rngs(0))
    images = jnp.asarray(np.random.default_rng(0).random((4, 32, 32, 1)), jnp.float32)
    noise = model.Noise(jax.random.key(0), jnp.float32(1.0))
    gradient = nnx.grad(lambda m: demo.loss_of(m, images, jnp.arange(4), noise)[0])(classifier)
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradient):
        assert jnp.isfinite(leaf).all(), path
        assert (leaf != 0).any(), path


def test_sparse_and_multiplied_forms_agree_in_training(examples):
    model = importlib.import_module("models.gated")
    from flax import nnx

    block = model.GatedBlock(8, nnx.Rngs(0))
    x = jnp.asarray(np.random.default_rng(1).standard_normal((2, 16, 16, 8)), jnp.float32)
    noise = model.Noise(jax.random.key(1), jnp.float32(0.5))
    within = jnp.asarray(np.random.default_rng(2).random((2, 16, 16)) < 0.5)
    for given, inside in itertools.product((None, noise), (None, within)):
        sparse, multiplied = (block(x, form, given, inside) for form in ("sparse", "multiplied"))
        for a, b in zip(sparse, multiplied, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_mnist_from_the_data_folder(examples, tmp_path, monkeypatch):
    data = importlib.import_module("models.gated_data")
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (6, 28, 28), np.uint8)
    labels = np.arange(6, dtype=np.uint8)
    arrays = {"train_images": images, "train_labels": labels}
    arrays |= {"test_images": images[:2], "test_labels": labels[:2]}
    np.savez(tmp_path / "mnist.npz", **arrays)
    monkeypatch.setenv("JAXSPARSE_DATA", str(tmp_path))
    digits = data.load()
    assert digits.name == "MNIST"
    assert digits.train_images.shape == (6, 32, 32, 1)
    np.testing.assert_allclose(digits.test_images[:, 2:30, 2:30, 0], images[:2] / 255, rtol=1e-6)
    assert digits.train_labels.dtype == np.int32


@pytest.mark.slow
def test_both_from_another_folder(examples, tmp_path):
    """Pictures go to ./out of the folder that the demo is called from."""
    command = [sys.executable, str(examples / "demo.py"), "--quick"]
    done = subprocess.run(
        command, check=True, cwd=tmp_path, timeout=500, stdout=subprocess.PIPE, text=True
    )
    names = {"edit_photo.png", "gated_classifier.png"}
    assert {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*.png")} == {
        f"out/{name}" for name in names
    }
    assert all(f"picture: out/{name}" in done.stdout for name in names)
