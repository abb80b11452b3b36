"""The challenge's networks, inputs and files."""

import os
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from bounded.stacks import oracle

import jaxsparse as js
from jaxsparse.bounded.radixnet import patterns

DATA = Path(os.environ.get("JAXSPARSE_DATA", "/nonexistent"))


def needs(*files):
    missing = [name for name in files if not (DATA / name).exists()]
    return pytest.mark.skipif(bool(missing), reason=f"JAXSPARSE_DATA holds no {missing}")


@needs("sdgc_n1024_l120.npz")
def test_recipe_gives_the_official_network():
    official = np.load(DATA / "sdgc_n1024_l120.npz")["columns"]
    pointers = np.arange(0, 1024 * 32 + 1, 32)
    for columns, weight in zip(official, patterns(1024, 120), strict=True):
        data = np.full(columns.size, 1 / 16, np.float32)
        entries = sp.csr_matrix((data, columns.astype(np.int32).ravel(), pointers), (1024, 1024))
        assert (entries.T.tocsr() != weight).nnz == 0


@needs("mnist.npz", "sdgc_n1024_l120_categories.npy")
@pytest.mark.parametrize("fold", [True, False])
def test_categories_of_mnist(implementation, fold):
    images = np.load(DATA / "mnist.npz")["train_images"]
    images = images[:3000] if implementation == "reference" or not fold else images[:20000]
    depth = 40 if implementation != "reference" else 12
    x = js.bounded.challenge_inputs(images, 1024)
    layers = js.bounded.radixnet(1024, depth, fold=fold)
    net = js.bounded.network(layers, fold=fold, implementation=implementation)
    weights = list(patterns(1024, depth))
    alive, rows = [], np.arange(len(x))
    y = x.astype(np.float64)
    for w in weights:
        y = oracle(y, [w], [-0.3], [32.0])
        done = (y == 0).all(1) | (y == 32).all(1)
        alive += list(rows[(y == 32).all(1)])
        y, rows = y[~done], rows[~done]
    want = np.sort(np.concatenate([alive, rows]))
    np.testing.assert_array_equal(js.bounded.categories(net(jnp.asarray(x))), want)
    if len(images) == 20000:
        official = np.load(DATA / "sdgc_n1024_l120_categories.npy") - 1
        official = official[official < 20000]
        assert len(np.setxor1d(want, official)) <= 40


@pytest.mark.parametrize("neurons", [32, 128, 1024])
def test_every_neuron_has_32_entries_that_sum_to_2(neurons):
    for weight in patterns(neurons, 8) if neurons > 32 else patterns(neurons, 3):
        np.testing.assert_allclose(weight.sum(1), 2.0)
        np.testing.assert_allclose(weight.sum(0), 2.0)
    assert js.bounded.radixnet_layer(weight.T).distinct <= neurons // 16


@pytest.mark.parametrize("neurons", [16, 1000, 48, -1024])
def test_other_widths_are_refused(neurons):
    with pytest.raises(ValueError, match="neurons="):
        list(js.bounded.radixnet(neurons, 2))


def test_strokes_stand_in_for_digits():
    images = js.bounded.strokes(20)
    assert images.shape == (20, 28, 28)
    assert images.any((1, 2)).all()
    x = js.bounded.challenge_inputs(images, 1024)
    assert x.shape == (20, 1024)
    assert set(np.unique(x)) == {0.0, 1.0}
    with pytest.raises(ValueError, match="neurons=1000"):
        js.bounded.challenge_inputs(images, 1000)
    with pytest.raises(ValueError, match="images has shape"):
        js.bounded.challenge_inputs(images[0], 1024)


def test_readers(tmp_path):
    layer, images, categories = (tmp_path / n for n in ("layer.tsv", "x.tsv", "true.tsv"))
    layer.write_text("1\t2\t0.0625\n3\t2\t0.5\n")
    images.write_text("1\t4\t1\n2\t1\t1\n")
    categories.write_text("1\n3\n")
    weight = js.bounded.read_layer(layer, 4)
    assert weight[0, 1] == 0.0625
    assert weight[2, 1] == 0.5
    assert weight.nnz == 2
    np.testing.assert_array_equal(js.bounded.read_images(images, 4, 2)[:, [0, 3]], [[0, 1], [1, 0]])
    np.testing.assert_array_equal(js.bounded.read_categories(categories), [0, 2])
    layer.write_text("")
    assert js.bounded.read_layer(layer, 4).nnz == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\t2\t0.5\n1\t9\t0.5\n", "line 2: field 2 is 9; it takes a whole number from 1 to 4"),
        ("1\t2\t0.5\n1\t2\n", "line 2: 2 fields; it takes 3"),
        ("1\t2\t0.5\n\n1\t2\t1\n", "line 2: 0 fields"),
        ("1\tx\t0.5\n", "line 1: .*holds no numbers"),
        ("1\t2\tnan\n", "line 1: field 3 is nan; it takes a finite number"),
        ("1.5\t2\t1\n", "line 1: field 1 is 1.5"),
    ],
)
def test_broken_lines_are_named(tmp_path, text, message):
    path = tmp_path / "layer.tsv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        js.bounded.read_layer(path, 4)


def test_categories_take_arrays_and_activations():
    y = jnp.array([[0.0, 0.0], [0.0, 1.0], [jnp.nan, 0.0]])
    np.testing.assert_array_equal(js.bounded.categories(y), [1, 2])
    acts = js.bounded.Activations(y, js.recorder.probe(y, 2, 1.0))
    np.testing.assert_array_equal(js.bounded.categories(acts), [1, 2])
