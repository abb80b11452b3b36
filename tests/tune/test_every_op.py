"""`js.tune` of ops without a `TileIndex`: measured on what a run gives them, and on drawn data."""

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest

import jaxsparse as js
from jaxsparse.core.device import home_platform
from jaxsparse.select.choice import Reason
from jaxsparse.tune.rows.given import given

RNG = np.random.default_rng(0)
TOKENS = jnp.asarray(RNG.standard_normal((32, 64)), jnp.float32)
SQUARE = jnp.asarray(RNG.standard_normal((64, 64)) / 8, jnp.float32)
BLOCKS = jnp.asarray(RNG.random((4, 8)) < 0.4)
LIMIT = 1e-4 if jax.default_backend() == "cpu" else 5e-3  # TF32
QUICK = {"samples": 1, "calls": 2, "cache": False, "progress": False, "densities": (0.1, 0.9)}
WEIGHT = np.where(RNG.random((64, 64)) < 0.1, np.asarray(SQUARE), 0).astype(np.float32)


def attend(x):
    q = x.reshape(1, 32, 1, 64)
    mask = js.create_block_mask(lambda b, h, i, j: j <= i, 1, 1, 32, 32, 16)
    return js.sparse_attention(q, q, q, mask)


CALLS = {
    "masked_matmul": lambda x: js.masked_matmul(x, SQUARE, a_mask=BLOCKS, granularity=(8, 8)),
    "grouped_matmul": lambda x: js.grouped_matmul(
        x, jnp.stack([SQUARE, SQUARE]), jnp.asarray([20, 12])
    ),
    "sparse_attention": attend,
    "sparse_ffn": lambda x: js.sparse_ffn(x[:4], SQUARE, SQUARE),
    "pruned_matmul": lambda x: js.pruned_matmul(x, js.pruned.inspect(WEIGHT)),
}


@pytest.mark.parametrize("op", CALLS)
def test_every_op_is_tuned(op):
    call = CALLS[op]
    made = js.tune(call, TOKENS, **QUICK, merge=False)
    mine = [entry for entry in made.entries if entry.op == op]
    rates = [rate for rate in made.rates if rate.op == op]
    if not mine:
        assert "keep the shipped choice" in made.measured
        return
    names = {v.name for v in js.variants(op) if v.platform == home_platform()}
    assert {mine[0].static, *(rung.variant for rung in mine[0].ladder)} <= names
    assert {rate.variant for rate in rates} <= names
    assert len(rates) >= 2
    want = call(TOKENS)
    with js.config(tuning=made, selection="static"):
        report = js.explain(call, TOKENS)
        np.testing.assert_allclose(report.result, want, rtol=LIMIT, atol=LIMIT)
    chosen = report.calls[0].choice
    assert chosen.first == mine[0].static
    assert chosen.us is not None, "the rates say what it takes"
    assert chosen.reason is Reason.TABLE


def test_a_run_is_kept_as_it_was():
    seen = {site.problem.op: one for site, one in given(CALLS["masked_matmul"], TOKENS)}
    one = seen["masked_matmul"]
    assert one.count == int(BLOCKS.sum())
    (mask,) = one.leaves.values()
    np.testing.assert_array_equal(mask.reshape(BLOCKS.shape), BLOCKS)


def test_shapes_alone_do_for_what_is_drawn():
    like = jax.ShapeDtypeStruct(TOKENS.shape, TOKENS.dtype)
    with (
        pytest.warns(RuntimeWarning, match="not tuned: sparse_attention"),
        pytest.raises(ValueError, match="give arrays as arguments"),
    ):
        js.tune(attend, like, **QUICK)
    made = js.tune(CALLS["pruned_matmul"], like, **QUICK)
    assert made.device == "cpu" or home_platform() != "cpu"


def test_the_table_of_another_shape_is_not_taken():
    """A table covers what it measured, and near shapes: not every problem of its op."""
    call = CALLS["masked_matmul"]
    made = js.tune(call, TOKENS, **QUICK, merge=False)
    wide = jnp.zeros((512, 1024))
    blocks = jnp.ones((512, 1024), bool)
    with js.config(tuning=made):
        choice = js.explain(lambda x: js.masked_matmul(x, wide.T, a_mask=blocks), wide).calls[0]
    assert choice.choice.reason is not Reason.TABLE


def test_a_search_measures_a_part(tmp_path):
    """The finalists and what is shipped are measured on every mask; a second call measures none."""
    call = CALLS["masked_matmul"]
    options = QUICK | {"densities": (0.1, 0.3, 0.5, 0.9), "cache": tmp_path}
    made = js.tune(call, TOKENS, **options, share=0.3, size=2, merge=False)
    (kept,) = tmp_path.glob("*.json")
    content = msgspec.json.decode(kept.read_bytes())
    costs = content["costs"]
    assert content["key"]["search"] == [0.3, 2, 0]
    assert len(costs["variants"]) < len(content["key"]["variants"])
    assert {"dense", "auto"} <= set(costs["variants"])
    assert len(costs["density"]) == 5, "what the run gave, and four densities"
    again = js.tune(call, TOKENS, **options, share=0.3, size=2, merge=False)
    assert again.entries == made.entries
    assert again.rates == made.rates
