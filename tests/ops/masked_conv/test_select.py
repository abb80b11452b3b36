"""Every way of choosing gives the same result; what was chosen can be read off."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ops.masked_conv.test_masked_conv import make_inputs
from ops.op_suite import assert_close

import jaxsparse as js
from jaxsparse.select.config import override
from jaxsparse.select.table import Entry, Rung

FEATURES = ("pixels", "taps", "channels", "outputs", "groups", "stride")
PLATFORM = "cuda" if jax.default_backend() == "gpu" else "cpu"


@pytest.fixture
def call(rng):
    diff, _ = make_inputs(rng, 0.3, channels=32, outputs=64)
    diff = {k: jnp.asarray(v) for k, v in diff.items()}

    def run(mask):
        return js.masked_conv(diff["x"], diff["kernel"], mask, bias=diff["bias"], base=diff["base"])

    return run


def masks(rng):
    return [jnp.asarray(rng.random((2, 9, 37)) < d) for d in (0.0, 0.05, 0.3, 0.9, 1.1)]


def names():
    return [v.name for v in js.variants("masked_conv") if v.platform == PLATFORM]


def test_there_are_variants():
    assert len(names()) >= 4
    with pytest.raises(ValueError, match="op='nothing'"):
        js.variants("nothing")


def taken(call, mask):
    """The variants that take this problem: all that `explain` says nothing against."""
    against = js.explain(call, mask).calls[0].against
    return [n for n in names() if n not in against]


def test_every_variant_agrees(call, rng):
    fit = taken(call, masks(rng)[0])
    assert len(fit) >= 4
    for mask in masks(rng):
        with js.config(variant="dense"):
            want = call(mask)
        for name in fit:
            with js.config(variant=name):
                assert_close(call(mask), want, "float32")


def test_switch_takes_each_rung(call, rng):
    fit = taken(call, masks(rng)[0])
    ladder = tuple(
        Rung(edge, name)
        for edge, name in zip((0.01, 0.1, 0.5, 1.0), [*fit[:3], "dense"], strict=True)
    )
    entry = Entry("masked_conv", "float32", {}, ladder[0].variant, ladder)
    table = js.TuningTable(device="test", measured="", entries=(entry,))
    ran = set()
    for mask in masks(rng):
        with js.config(selection="switch", tuning=table):
            got = jax.jit(call)(mask)
            told = js.explain(call, mask).calls[0]
        ran.add(told.variant(told.counts[0]))
        with js.config(selection="static"):
            assert_close(got, call(mask), "float32")
    assert len(ran) == 4, ran


def test_switch_under_vmap_and_grad(call, rng):
    batch = jnp.stack(masks(rng)[1:4])
    with js.config(selection="switch"):
        got = jax.jit(jax.vmap(call))(batch)
    for i in range(3):
        assert_close(got[i], call(batch[i]), "float32")


def test_config_is_part_of_the_jit_key(call, rng):
    mask = masks(rng)[2]
    f = jax.jit(call)
    f(mask)
    with override(variant="no such"), pytest.raises(ValueError, match="variant='no such'"):
        f(mask)
    with pytest.raises(ValueError, match="selection='maybe'"), js.config(selection="maybe"):
        pass
    with pytest.raises(TypeError, match="tuning must be"), js.config(tuning={}):
        pass


def test_explain_counts_tiles(call, rng):
    mask = masks(rng)[2]
    told = js.explain(lambda m: call(m) + call(js.tile_index(m, (8, 8))), mask)
    assert [c.op for c in told.calls] == ["masked_conv", "tile_index", "masked_conv"]
    assert told.calls[0].counts == [int(mask.sum())]
    assert told.calls[1].n_tiles == told.calls[2].n_tiles == 2 * 2 * 5
    assert "skipped" in str(told)
    assert_close(told.result, 2 * call(mask), "float32")


def test_lowers_for_cuda_with_base_in_place(call, rng):
    mask = masks(rng)[2]
    text = jax.jit(call).trace(mask).lower(lowering_platforms=("cuda",)).as_text()
    from jaxsparse.ffi import register

    if register.module("cuda")[0] is None:
        pytest.skip("no cuda module in this build")
    assert "jaxsparse_masked_conv" in text
    assert re.search(r"output_operand_alias[^\n]*operand_index = 7", text)


def test_full_mask_is_the_dense_convolution(call, rng):
    full = jnp.ones((2, 9, 37), bool)
    with jax.default_matmul_precision("highest"):
        with js.config(variant="dense"):
            want = call(full)
        np.testing.assert_allclose(call(full), want, rtol=2e-3, atol=2e-3)


def test_a_table_puts_dense_in_place_of_near_problems_unasked_only(rng):
    diff, mask = make_inputs(rng, 0.3, channels=32, outputs=64)
    x, kernel, mask = (jnp.asarray(v) for v in (diff["x"], diff["kernel"], mask))
    features = dict(zip(FEATURES, (666.0, 9.0, 32.0, 64.0, 1.0, 1.0), strict=True))

    def chosen(implementation=None, **changed):
        entry = Entry("masked_conv", "float32", features | changed, "dense", (Rung(1.0, "dense"),))
        table = js.TuningTable(device="test", measured="", entries=(entry,))
        with js.config(tuning=table):
            told = js.explain(
                lambda: js.masked_conv(x, kernel, mask, implementation=implementation)
            )
        return next(c for c in told.calls if c.op == "masked_conv").choice.rungs[0].variant

    assert chosen() == chosen(pixels=1000.0) == "dense"
    assert chosen(pixels=16000.0) != "dense"
    assert chosen(implementation=PLATFORM) != "dense"
