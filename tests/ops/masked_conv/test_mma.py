"""The mma.sync rows of `masked_conv`, which every GPU from sm_80 on runs: against the reference on
a GPU, and what a device without wgmma chooses, on any machine.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ops.op_suite import assert_close, cast, like_dense

import jaxsparse as js
from jaxsparse.core.geometry import Geometry
from jaxsparse.ops.masked_conv import native as native
from jaxsparse.ops.masked_conv.params import ConvParams
from jaxsparse.ops.masked_conv.run import problem_of
from jaxsparse.select.masked_conv import estimate, reasons
from jaxsparse.select.roofline.machine import by_ratio, machine_of
from jaxsparse.select.table import shipped
from jaxsparse.select.variants import table

ON_GPU = jax.default_backend() == "gpu"
ROWS = [n for n, v in table("masked_conv", "cuda").items() if v.fields.get("mma")]
gpu = pytest.mark.skipif(not ON_GPU, reason="mma.sync runs on a GPU")
built = pytest.mark.skipif(not ROWS, reason="no cuda module in this build")

LAYERS = {
    "3x3": ((3, 3), 64, 64, {}),
    "1x1": ((1, 1), 128, 72, {}),
    "5x5, stride 2": ((5, 5), 32, 40, {"strides": (2, 2)}),
    "7x7, stride 2": ((7, 7), 16, 136, {"strides": (2, 2)}),
    "2x4, dilated": ((2, 4), 24, 8, {"dilation": (2, 3)}),
    "cropped": ((3, 3), 16, 64, {"padding": ((-1, 0), (2, -2))}),
    "odd channels": ((3, 3), 33, 17, {}),
    "even channels": ((3, 3), 18, 130, {"strides": (2, 1)}),
    "one channel": ((3, 3), 1, 1, {}),
}


def problem(rng, layer, dtype):
    """Operands of a layer, its options, and the shape of its mask."""
    window, channels, outputs, options = LAYERS[layer]
    x = rng.standard_normal((2, 19, 37, channels))
    kernel = rng.standard_normal((*window, channels, outputs))
    kernel /= np.sqrt(np.prod(kernel.shape[:3]))
    arrays = cast({"x": x, "kernel": kernel}, dtype)
    like = like_dense(arrays["x"], arrays["kernel"], options)
    return arrays, options, like.shape


@gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_every_row_agrees(rng, layer, dtype):
    arrays, options, shape = problem(rng, layer, dtype)
    bias = jnp.asarray(rng.standard_normal(shape[3]), jnp.float32)
    extra = cast({k: rng.standard_normal(shape) for k in ("base", "residual")}, dtype)
    for density, tile, starts in ((0.3, (1, 1), False), (0.7, (4, 8), True), (1.1, (8, 8), False)):
        mask = jnp.asarray(rng.random(shape[:3]) < density)
        more = {}
        if starts:
            hole = jnp.where(mask[..., None], extra["residual"], jnp.nan)  # active pixels only
            more = {"base": extra["base"], "residual": hole, "activation": "silu"}

        def call(implementation=None, mask=mask, tile=tile, more=more):
            index = js.tile_index(mask, tile)
            return js.masked_conv(
                *arrays.values(),
                index,
                bias=bias,
                implementation=implementation,
                **options,
                **more,
            )

        want = call("reference")
        kept = np.asarray(more.get("base", jnp.zeros(shape, dtype)), np.float32)
        outside = ~np.asarray(mask)
        for name in ROWS:
            with js.config(variant=name):
                got = call()
            assert_close(got, want, dtype)
            assert (np.asarray(got, np.float32)[outside] == kept[outside]).all()


@gpu
def test_what_the_mask_does_not_reach_may_be_nan(rng):
    arrays, _, shape = problem(rng, "odd channels", "bfloat16")
    mask = np.zeros(shape[:3], bool)
    mask[0, 3:9, 4:30] = rng.random((6, 26)) < 0.5
    reached = np.zeros_like(mask)
    for dy in (-1, 0, 1):
        for dx in (-1, 0, 1):
            reached |= np.roll(mask, (dy, dx), (1, 2))
    x = jnp.where(reached[..., None], arrays["x"], jnp.nan)
    want = js.masked_conv(arrays["x"], arrays["kernel"], mask, implementation="reference")
    for name in ROWS:
        with js.config(variant=name):
            assert_close(js.masked_conv(x, arrays["kernel"], jnp.asarray(mask)), want, "bfloat16")


@gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("layer", ["3x3", "5x5, stride 2", "odd channels"], ids=str)
def test_gradients_for_x_are_the_same_rows(rng, layer, dtype):
    """Turned weights, a dilated and masked input: dx is the op again."""
    arrays, options, shape = problem(rng, layer, dtype)
    mask = jnp.asarray(rng.random(shape[:3]) < 0.4)
    weight = jnp.asarray(rng.standard_normal(shape), jnp.float32)

    def loss(x, kernel, implementation=None):
        y = js.masked_conv(x, kernel, mask, implementation=implementation, **options)
        return jnp.sum(y.astype(jnp.float32) * weight)

    grad = jax.grad(loss, argnums=(0, 1))
    want = jax.grad(lambda x, k: loss(x, k, "reference"), argnums=(0, 1))(*arrays.values())
    for name in ROWS:
        with js.config(variant=name):
            text = jax.jit(grad).lower(*arrays.values()).as_text()
            got = jax.jit(grad)(*arrays.values())
        number = table("masked_conv", "cuda")[name].number
        assert text.count(f"variant = {number} : i64") >= 1  # dx, the loss's value is not used
        for a, b in zip(got, want, strict=True):
            assert_close(a, b, dtype, scale=2.0)


@gpu
def test_an_overflowing_list_and_components(rng):
    arrays, _, shape = problem(rng, "3x3", "float32")
    mask = jnp.asarray(rng.random(shape[:3]) < 0.3)
    short = js.tile_index(mask, (4, 8), capacity=3, ordered=True)
    parts = js.tile_index(mask, (2, 4), align="component")
    for index in (short, parts):
        want = js.masked_conv(*arrays.values(), index, implementation="reference")
        for name in ROWS:
            with js.config(variant=name):
                assert_close(js.masked_conv(*arrays.values(), index), want, "float32")


@gpu
def test_a_device_without_wgmma_chooses_among_them_by_the_count(rng):
    """By an estimated table, whose rates know no other rows."""
    arrays, _, shape = problem(rng, "3x3", "bfloat16")
    tuning = estimate.estimated("8.0", machine(108))
    for selection in ("device", "switch", "static", None):
        for density in (0.0, 0.2, 1.1):
            mask = jnp.asarray(rng.random(shape[:3]) < density)
            want = js.masked_conv(*arrays.values(), mask, implementation="reference")
            with js.config(selection=selection, tuning=tuning):
                got = jax.jit(js.masked_conv)(*arrays.values(), mask)
                told = js.explain(lambda m: js.masked_conv(*arrays.values(), m), mask)
            assert_close(got, want, "bfloat16")
            call = next(c for c in told.calls if c.op == "masked_conv")
            if selection == "device":
                assert call.choice.how == "device"
                assert {c.variant for c in call.choice.candidates} <= set(ROWS)
            else:
                ran = call.variant(call.counts[0]).removesuffix(" on every tile")
                assert ran in {*ROWS, "dense"}


def arrays_of(channels, outputs, dtype="bfloat16", side=256):
    x = jax.ShapeDtypeStruct((1, side, side, channels), dtype)
    return x, jax.ShapeDtypeStruct((3, 3, channels, outputs), dtype)


def params(dtype="bfloat16", groups=1, precision="default"):
    geometry = Geometry((1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), groups)
    return ConvParams(geometry, None, precision, dtype)


@built
def test_they_take_what_tensor_cores_multiply(monkeypatch):
    monkeypatch.setattr(reasons, "is_hopper", lambda: False)
    index = js.tile_index(jnp.ones((1, 8, 8), bool), (1, 1))
    x, kernel = arrays_of(33, 17)

    def takes(p, x, kernel):
        return [n for n in reasons.takes(problem_of(p, "cuda", x, kernel, index)) if n in ROWS]

    assert sorted(takes(params(), x, kernel)) == sorted(ROWS)
    assert not takes(params("float32", precision="highest"), *arrays_of(64, 64, "float32"))
    assert not takes(params(groups=3), x, jax.ShapeDtypeStruct((3, 3, 11, 18), "bfloat16"))
    assert not takes(params(), x, jax.ShapeDtypeStruct((9, 9, 33, 17), "bfloat16"))


@built
def test_where_nothing_was_measured_channels_decide(monkeypatch):
    monkeypatch.setattr(reasons, "is_hopper", lambda: False)
    index = js.tile_index(jnp.ones((1, 512, 512), bool), (1, 1))

    def first(channels, outputs, dtype="bfloat16", **options):
        p = params(dtype, **options)
        return reasons.takes(problem_of(p, "cuda", *arrays_of(channels, outputs, dtype), index))[0]

    assert first(3, 32) == first(4, 64) == "direct"
    assert first(8, 64) == first(16, 16) == "mma128n64"
    assert first(12, 64, "float32") == "direct"  # cheap, and exact
    assert first(65, 64) == first(64, 64, "float32") == "mma128n64"
    assert first(256, 256) == "mma128n128"
    few = js.tile_index(jnp.ones((1, 16, 16), bool), (1, 1))
    assert reasons.takes(problem_of(params(), "cuda", *arrays_of(256, 256), few))[0] == "mma64n64"
    large = dataclasses.replace(few, tile=(2**12, 2**12))  # than the image: a tile of 16 x 16
    assert reasons.takes(problem_of(params(), "cuda", *arrays_of(256, 256), large))[0] == "mma64n64"
    native.check_pixels(dataclasses.replace(large, capacity=2**22))
    with pytest.raises(ValueError, match="mask: a list of 4194305 tiles"):
        native.check_pixels(dataclasses.replace(large, capacity=2**22 + 1))


def machine(processors):
    """A device that is not listed, of which only its multiprocessors are known."""
    return by_ratio("a device", processors, machine_of(shipped()["NVIDIA H200"]))


@built
@pytest.mark.parametrize(("capability", "processors"), [("8.0", 108), ("8.9", 128), ("7.7", 40)])
def test_an_estimated_table(capability, processors):
    other = shipped()["NVIDIA H200"]
    tuning = estimate.estimated(capability, machine(processors))
    assert tuning.processors == processors
    assert "estimated" in tuning.measured

    def entry(channels, outputs, dtype="bfloat16"):
        x, kernel = arrays_of(channels, outputs, dtype, side=512)
        like = js.tile_index(jnp.ones((1, 512, 512), bool), (1, 1))
        found = problem_of(params(dtype), "cuda", x, kernel, like).known
        nearest = tuning.nearest(found.op, found.dtype, found.features)
        assert nearest is not None
        return nearest

    for dtype in ("bfloat16", "float16", "float32"):
        assert entry(4, 64, dtype).static == "direct"
        for channels in (16, 64, 256):
            assert entry(channels, channels, dtype).static in ROWS
            ladder = entry(channels, channels, dtype).ladder
            assert ladder[0].variant in ROWS
            assert ladder[-1].up_to == 1.0
        assert entry(256, 256, dtype).ladder[-1].variant == "dense"
    highest = [e for e in tuning.entries if e.dtype == "highest"]
    assert highest == [e for e in other.entries if e.dtype == "highest"]


def test_dense_has_other_tensor_cores_on_new_devices():
    shape = (9, 256, 256, 1)
    one = machine(100)
    steps = [estimate.dense_rate(c, one, "bfloat16", shape).step for c in ("8.0", "10.0", "10.3")]
    assert steps[0] > 3 * steps[1]
    assert steps[1] == steps[2]


def test_slower_tensor_cores_take_longer_steps():
    fast, slow = (
        {
            (r.dtype, r.variant): r.step + r.row_step
            for r in estimate.rates(capability, shipped()["NVIDIA H200"], machine(100))
        }
        for capability in ("8.0", "8.9")
    )
    assert fast.keys() == slow.keys()
    assert all(slow[key] > fast[key] for key in fast)
