"""Transformers for long inputs: their masks in blocks, and their forms at a small size."""

import functools
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples.test_demos import check_picture

TOKENS = 200  # not a multiple of the blocks


@pytest.fixture
def long(examples):
    """(sizes, masks, networks)"""
    return [importlib.import_module(f"models.long.{n}") for n in ("config", "masks", "network")]


def small(config, kind):
    return config.Config(kind, 2, 1, reach=40, bar=(10, 30), block=(32, 16))


def test_the_mask_of_a_window(long):
    """A query attends to its window and to global tokens outside of it, to none twice."""
    config, masks, _ = long
    sizes = small(config, "longformer")
    at = np.full((2, config.GLOBALS), -1, np.int32)
    at[0, :3], at[1, :1] = (0, 77, 199), 30
    mask = jax.jit(functools.partial(masks.window_mask, sizes, TOKENS))(jnp.asarray(at))
    assert not mask.overflow
    q = np.arange(TOKENS)[None, :, None]
    window = np.abs(q - q.swapaxes(1, 2)) <= sizes.reach
    front = (at[:, None] >= 0) & (np.abs(q - at[:, None]) > sizes.reach)
    both = np.broadcast_to(window, (2, TOKENS, TOKENS))
    np.testing.assert_array_equal(mask.to_dense()[:, 0], np.concatenate([front, both], 2))
    chosen = np.stack([np.isin(np.arange(TOKENS), row) for row in at])[:, None]
    dense = masks.dense_mask(sizes, TOKENS, jnp.asarray(at))
    np.testing.assert_array_equal(dense[:, 0], both | chosen)


@pytest.mark.parametrize("block", [(32, 16), (16, 64)])
def test_the_mask_of_bars(long, block):
    config, masks, _ = long
    sizes = small(config, "museformer")._replace(block=block)
    _, bars = config.inputs(sizes, 2, TOKENS, 3)
    summaries = sizes.summaries(TOKENS)
    assert summaries > int(bars.max())
    mask = jax.jit(functools.partial(masks.bar_mask, sizes, TOKENS))(bars)
    assert not mask.overflow
    for row, found in zip(np.asarray(bars), np.asarray(mask.to_dense())[:, 0], strict=True):
        bar = np.concatenate([np.arange(summaries), row])
        summary = np.arange(len(bar)) < summaries
        for q in range(len(bar)):
            back = bar[q] - bar
            past = np.arange(len(bar)) <= q
            near = past & ~summary & np.isin(back, (0, 1, 2, 4, 8, 12, 16, 24, 32))
            want = back == 0 if summary[q] else near | (summary & (back > 0))
            np.testing.assert_array_equal(found[q], want, err_msg=f"row {q}")
    dense = masks.dense_mask(sizes, TOKENS, bars)
    np.testing.assert_array_equal(dense, mask.to_dense())


def test_other_positions_need_no_other_compilation(long):
    config, _, network = long
    sizes, traces = small(config, "longformer"), []
    params = network.initial(sizes, TOKENS)

    @jax.jit
    def run(ids, given):
        traces.append(given.shape)
        return network.forward(sizes, "sparse", params, ids, given)

    (ids, one), (_, other) = (config.inputs(sizes, 1, TOKENS, seed) for seed in (0, 1))
    assert (np.asarray(one) != np.asarray(other)).any()
    assert np.abs(np.asarray(run(ids, one) - run(ids, other))).max() > 1e-2
    assert len(traces) == 1


@pytest.mark.parametrize("kind", ["longformer", "museformer"])
def test_the_demo(examples, tmp_path, kind, capsys):
    demo = importlib.import_module("long_attention")
    found = demo.main(["--quick", "--networks", kind, "--batch", "2", "--out", str(tmp_path)])
    (row,) = found.rows
    assert row.error < demo.TOLERANCE["float32"] or jax.default_backend() == "gpu"
    assert 0 < row.attended < row.listed < 1
    assert set(row.times) == {*demo.FORMS, "mask"}
    assert min(row.times.values()) > 0
    assert row.memory["sparse"] < row.memory["dense"]
    check_picture(found.picture)
    assert "largest difference from dense" in " ".join(capsys.readouterr().out.split())


def test_a_length_that_does_not_fit(examples, tmp_path):
    demo = importlib.import_module("long_attention")
    with pytest.raises(ValueError, match="--lengths has 100; it takes multiples of 64"):
        demo.main(["--quick", "--lengths", "100", "--out", str(tmp_path)])
