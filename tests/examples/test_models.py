"""The models around the products at small sizes: both sides agree, tables are whole, pictures
exist.
"""

import importlib

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest
from examples.test_demos import check_picture

import jaxsparse as js
from jaxsparse.bench.products.rows import ProductRow


def test_ragged_encoder(examples, tmp_path, capsys):
    demo = importlib.import_module("ragged_encoder")
    result = demo.main(["--quick", "--out", str(tmp_path)])
    np.testing.assert_allclose(result.shares, demo.SHARES, atol=0.03)
    for times, errors in zip(result.times, result.errors, strict=True):
        assert set(times) == set(errors) == set(demo.FORMS)
        assert max(errors.values()) <= demo.TF32_TOLERANCE
        assert min(times.values()) > 0
    check_picture(result.picture)
    assert "packed" in capsys.readouterr().out


@pytest.mark.parametrize("form", ["masked", "packed", "sparse"])
def test_ragged_forms_do_not_read_padding(examples, form):
    """Any number of tokens gives what the padded form gives; what padding holds does not count."""
    model = importlib.import_module("models.ragged")
    encoder = model.Encoder(1, 64, 50)
    rng = np.random.default_rng(0)
    ids = rng.integers(1, 25, (3, 9)).astype(np.int32)
    params = encoder.init(jax.random.key(0), jnp.asarray(ids), jnp.full(3, 9, jnp.int32))
    call = jax.jit(lambda params, ids, n: model.encode(encoder, form, params, ids, n, parts=4))
    table = params["params"]["tokens"]["embedding"]
    grown = {"params": {**params["params"], "tokens": {"embedding": table.at[25:].set(7.0)}}}
    for lengths in ([5, 9, 1], [9, 9, 9], [0, 1, 0], [0, 0, 0], [3, 3, 1], [9, 4, 0]):
        n = jnp.asarray(lengths, jnp.int32)
        mask = np.asarray(js.lengths_mask(n, 9))
        want = model.encode(encoder, "padded", params, jnp.asarray(ids), n)
        other = np.where(mask, ids, rng.integers(25, 50, ids.shape)).astype(np.int32)
        got = call(params, jnp.asarray(ids), n)
        np.testing.assert_allclose(got, want, atol=2e-2 if jax.default_backend() == "gpu" else 2e-5)
        assert (np.asarray(got)[~mask] == 0).all()
        np.testing.assert_array_equal(call(grown, jnp.asarray(other), n), got)


@pytest.mark.parametrize("unit", ["sentences", "paragraphs", "topics"])
def test_text(examples, unit):
    text = importlib.import_module("models.text")
    assert len(text.pieces(unit)) > 50
    batch = text.batch_of_share(unit, 0.4, 32)
    assert batch.ids.shape == (32, text.LONGEST[unit])
    assert batch.share == pytest.approx(0.4, abs=0.05)
    assert batch.lengths.max() == text.LONGEST[unit]
    assert batch.lengths.min() >= 1
    np.testing.assert_array_equal((batch.ids > 0).sum(1), batch.lengths)
    assert batch.ids.max() < text.VOCABULARY
    again = text.batch_of_share(unit, 0.4, 32)
    np.testing.assert_array_equal(batch.ids, again.ids)


def test_sparse_training(examples, tmp_path, capsys):
    demo = importlib.import_module("sparse_training")
    result = demo.main(["--quick", "--every", "5", "--out", str(tmp_path)])
    for block in demo.BLOCKS:
        found = result.accuracy[block]
        assert found["sparse"] == pytest.approx(found["multiplied"], abs=0.02)
        assert min(found.values()) > 0.9
        assert result.kept[block] == pytest.approx(1 - demo.FINAL, abs=0.02)
    assert len(result.milliseconds) == len(demo.BLOCKS) * len(demo.SPARSITIES)
    check_picture(result.picture)
    assert "masked dense" in capsys.readouterr().out


def test_the_dense_step_is_compiled_once(examples):
    demo = importlib.import_module("sparse_training")
    shares = [demo.schedule(i, 100) for i in range(100)]
    ways = {form: {demo.way_at((32, 1), form, s) for s in shares} for form in demo.FORMS}
    assert {form: len(found) for form, found in ways.items()} == {"multiplied": 1, "sparse": 4}


@pytest.mark.parametrize("block", [(32, 64), (32, 1), (3, 5)])
def test_pruning_and_its_gradients(examples, block):
    """The weakest blocks go; gradients of what is pruned are zero, the others are the dense
    ones.
    """
    model = importlib.import_module("models.sparse_training")
    params = model.initial((20, 70, 70, 10))
    masks = model.hidden_masks(params, jnp.float32(0.7), block)
    (mask,) = masks
    weight = np.abs(np.asarray(params[1].w))
    rows, columns = mask.shape
    padded = np.pad(weight, ((0, rows * block[0] - 70), (0, columns * block[1] - 70)))
    scores = padded.reshape(rows, block[0], columns, block[1]).sum((1, 3))
    kept = np.asarray(mask)
    assert (~kept).sum() == round(0.7 * kept.size)
    assert scores[kept].min() >= scores[~kept].max()
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.random((16, 20), np.float32))
    y = jnp.asarray(rng.integers(0, 10, 16), jnp.int32)
    gradient = jax.grad(model.loss_of)
    ways = [model.Way(block, form) for form in ("sparse", "multiplied")]
    got, want = (gradient(params, masks, x, y, way) for way in ways)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)
    wide = np.kron(kept, np.ones(block, bool))[:70, :70]
    assert (np.asarray(got[1].w)[~wide] == 0).all()
    assert (np.asarray(got[1].w)[wide] != 0).any()


def test_moe_compare(examples, tmp_path, capsys):
    demo = importlib.import_module("moe_compare")
    result = demo.main(["--quick", "--out", str(tmp_path)])
    assert [what for _, what in result.rows] == list(demo.WHATS)
    for rows in result.rows.values():
        assert set(rows) == set(demo.SIDES)
        assert all(row.correct for row in rows.values()), rows
    check_picture(result.picture)
    assert "better of the two" in capsys.readouterr().out


def test_moe_compare_with_rivals_that_failed(examples):
    demo = importlib.import_module("moe_compare")
    named = dict.fromkeys(ProductRow.__struct_fields__)
    times = {"device_us": 2000.0, "temporary_mb": 1.0, "correct": True}
    row = ProductRow(**{**named, **times})
    wrong = msgspec.structs.replace(row, correct=False)
    rows = {demo.SERIAL: wrong, demo.PADDED: wrong, demo.OURS: row}
    cells = demo._cells(("case", "forward"), rows)
    assert cells == ["case", "forward", "failed", "failed", "2.00 (1)", "both failed"]
    slow = msgspec.structs.replace(row, device_us=5000.0)
    assert demo._cells(("case", "forward"), rows | {demo.PADDED: slow})[-1] == "2.50x"


def test_sparse_encoder(examples, tmp_path, capsys, monkeypatch):
    """Both forms of the whole step, under masks that change: the same losses, step by step."""
    demo = importlib.import_module("sparse_encoder")
    monkeypatch.setattr(demo, "BLOCKS", ((32, 64),))
    with jax.numpy_dtype_promotion("standard"):  # optax raises a float to an int32 count
        result = demo.run(demo.Shape(1, 64, 128, 64), tmp_path, 4, (demo.TRAINED_AT,), repeats=1)
    tight = 1e-4 if jax.default_backend() == "cpu" else 2e-2
    losses = result.losses[32, 64]
    np.testing.assert_allclose(losses["sparse"], losses["multiplied"], atol=tight)
    assert np.isfinite(losses["sparse"]).all()
    case = (32, 64), demo.TRAINED_AT
    assert set(result.peak[case]) == set(result.milliseconds[case]) == set(demo.FORMS)
    check_picture(result.picture)
    assert "32x64" in capsys.readouterr().out


def test_the_state_of_a_sparse_encoder_is_its_blocks(examples):
    model = importlib.import_module("models.sparse_encoder")
    sizes = {}
    for density in (0.1, 1.0):
        way = model.Way(model.Shape(1, 128, 128, 64), (32, 64), density, "sparse")
        state = jax.eval_shape(lambda way=way: model.initial(way)[:2])
        sizes[density] = sum(v.size for v in jax.tree.leaves(state) if v.ndim == 3)
    assert sizes[1.0] == 3 * 12 * 128**2  # values and both moments
    assert sizes[0.1] < 0.15 * sizes[1.0]


def test_relu_activations(examples, tmp_path, capsys):
    demo = importlib.import_module("relu_activations")
    with jax.numpy_dtype_promotion("standard"):
        result = demo.run(2, 64, 3, tmp_path, repeats=1)
    assert len(result.layers) == 2
    for layer in result.layers:
        assert 0.2 < layer.zeros < 0.9
        assert layer.unread[1] == pytest.approx(layer.zeros, abs=1e-6)
        assert layer.unread[512] <= layer.unread[4] <= layer.unread[1]
        assert min(layer.faster.values()) > 0
        assert layer.difference <= (demo.TOLERANCE if jax.default_backend() == "cpu" else 2e-2)
    check_picture(result.picture)
    assert "unread" in capsys.readouterr().out
