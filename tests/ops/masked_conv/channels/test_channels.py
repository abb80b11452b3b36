"""masked_conv with masks of channels: at what width it runs, and beside its other arguments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ops.masked_conv.channels.cases import want
from ops.op_suite import assert_close, cast, rounded

import jaxsparse as js
from jaxsparse.ops.masked_conv.channels import width_of, widths

CHANNELS, OUTPUTS = 70, 40


def drawn(rng, *names):
    scale = np.float32((9 * CHANNELS) ** -0.5)
    made = {
        "x": rng.standard_normal((2, 9, 11, CHANNELS), np.float32),
        "kernel": rng.standard_normal((3, 3, CHANNELS, OUTPUTS), np.float32) * scale,
        "bias": rng.standard_normal(OUTPUTS, np.float32),
        "base": rng.standard_normal((2, 5, 6, OUTPUTS), np.float32),
        "residual": rng.standard_normal((2, 5, 6, OUTPUTS), np.float32),
    }
    return {name: made[name] for name in ("x", "kernel", *names)}


def some(rng, n, active):
    return np.isin(np.arange(n), rng.permutation(n)[:active])


def wild(floats, ins, outs):
    """NaN in all that does not count."""
    off = {
        "x": ~ins,
        "kernel": ~(ins[:, None] & outs),
        "bias": ~outs,
        "residual": ~outs,
    }
    return {k: np.where(off[k], np.nan, v) if k in off else v for k, v in floats.items()}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_width_and_everything_fused(implementation, rng, dtype):
    mask = rng.random((2, 5, 6)) < 0.5
    floats = drawn(rng, "bias", "base", "residual")
    options = {"strides": (2, 2), "activation": "silu"}

    @jax.jit
    def run(floats, ins, outs):
        index = js.tile_index(mask, (2, 2))
        given = {"in_channels": ins, "out_channels": outs, "implementation": implementation}
        return js.masked_conv(**floats, mask=index, **given, **options)

    for active in ((1, 40), (31, 17), (40, 1), (64, 33), (70, 0), (0, 40), (70, 40)):
        ins, outs = some(rng, CHANNELS, active[0]), some(rng, OUTPUTS, active[1])
        got = run(cast(wild(floats, ins, outs), dtype), ins, outs)
        masks = {"mask": mask, "in_channels": ins, "out_channels": outs}
        assert_close(got, want(rounded(floats, dtype) | masks, **options), dtype)
        assert got.dtype == dtype


@pytest.mark.parametrize("axis", ["in_channels", "out_channels"])
def test_one_axis_alone_at_every_pixel(implementation, rng, axis):
    floats = drawn(rng)
    masks = {"in_channels": some(rng, CHANNELS, 20), "out_channels": some(rng, OUTPUTS, 20)}
    given = cast(floats, "float32") | {axis: masks[axis], "implementation": implementation}
    full = {"in_channels": np.ones(CHANNELS, bool), "out_channels": np.ones(OUTPUTS, bool)}
    mask = np.ones(floats["x"].shape[:3], bool)
    expected = want(floats | {"mask": mask} | full | {axis: masks[axis]})
    assert_close(js.masked_conv(mask=None, **given), expected, "float32")


def test_a_batch_of_channel_masks_computes_no_other_width(rng):
    """Under vmap a `lax.switch` on a batch would run every branch: here it stays a switch."""
    floats = cast(drawn(rng), "float32")
    masks = np.stack([some(rng, CHANNELS, n) for n in (3, 50)])

    def run(ins):
        return js.masked_conv(**floats, mask=None, in_channels=ins)

    one, many = (str(jax.make_jaxpr(f)(m)) for f, m in ((run, masks[0]), (jax.vmap(run), masks)))
    assert many.count("cond[") == one.count("cond[") > 0
    assert "scan[" in many


def test_explain_names_the_width(rng):
    floats = cast(drawn(rng), "float32")
    ins, outs = some(rng, CHANNELS, 33), some(rng, OUTPUTS, 16)
    masks = {"mask": None, "in_channels": ins, "out_channels": outs}
    told = str(js.explain(lambda x: js.masked_conv(x, floats["kernel"], **masks), floats["x"]))
    assert "runs in_channels at 32, 48, 64, 70; out_channels at 16, 32, 40" in told
    part = "33 of 70 in_channels at a width of 48, 16 of 40 out_channels at a width of 16"
    assert f"{part}: 27.43 % of the products" in told
    one = js.explain(
        lambda x: js.masked_conv(x, floats["kernel"], **masks, implementation="reference"),
        floats["x"],
    )
    assert "33 of 70 in_channels at a width of 70" in str(one), "the reference computes them all"


def test_widths_hold_what_is_active():
    for n in (0, 1, 3, 16, 24, 64, 96, 127, 128, 160, 256, 1000, 2048):
        found = widths(n)
        assert found[-1] == n
        assert len(found) <= 4
        assert list(found) == sorted(set(found))
        assert width_of(0, n) == found[0]
        assert width_of(n, n) == n
        # Half of the channels run at half of the width, but for the kernels' multiples.
        assert width_of(n // 2, n) <= n / 2 + 32


def test_record_is_of_the_whole_result(implementation, rng):
    floats = cast(drawn(rng, "base"), "float32")
    base = jnp.full(floats.pop("base").shape, 6.0)
    outs = some(rng, OUTPUTS, 20)
    out, found = js.masked_conv(
        **floats | {"base": base},
        mask=np.zeros((2, 5, 6), bool),
        strides=2,
        activation="relu6",
        record=8,
        out_channels=outs,
        implementation=implementation,
    )
    assert (np.asarray(out) == 6).all()
    np.testing.assert_array_equal(found.codes, js.recorder.probe(out, 8, 6.0).codes)


def test_a_batch_that_is_a_symbol(rng):
    floats = cast(drawn(rng), "float32")
    outs = some(rng, OUTPUTS, 20)

    def run(x):
        mask = jnp.ones(x.shape[:3], bool)
        return js.masked_conv(x, floats["kernel"], mask, out_channels=outs)

    batch = jax.export.symbolic_shape("b")[0]
    like = jax.ShapeDtypeStruct((batch, *floats["x"].shape[1:]), jnp.float32)
    made = jax.export.export(jax.jit(run), disabled_checks=js.DISABLE_JAX_EXPORT_CHECKS)(like)
    np.testing.assert_allclose(made.call(floats["x"]), run(floats["x"]), atol=1e-5)
