"""Few channels: 32 of 16 bits, whose pixels are half as wide as a row of a box, and one to four, as
a photograph has; and outputs between the powers of two. Every variant that takes them agrees with
the reference.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from ops.op_suite import assert_close, cast, like_dense
from ops.op_variants import PLATFORM, by_variant

import jaxsparse as js

LAYERS = {
    "32 to 32": ((3, 3), 32, 32, {}),
    "32 to 64, stride 2": ((3, 3), 32, 64, {"strides": (2, 2)}),
    "32 to 128": ((3, 3), 32, 128, {}),
    "5x5": ((5, 5), 32, 32, {}),
    "dilated": ((3, 3), 32, 16, {"dilation": (2, 2)}),
    "64 to 16": ((3, 3), 64, 16, {}),
    "1x1": ((1, 1), 256, 64, {}),
    "3 to 32": ((3, 3), 3, 32, {}),
    "4 to 40, 4x4": ((4, 4), 4, 40, {}),
    "1 to 8, stride 2": ((5, 5), 1, 8, {"strides": (2, 2)}),
    "64 to 96": ((3, 3), 64, 96, {}),
    "32 to 160": ((3, 3), 32, 160, {}),
    "64 to 232": ((3, 3), 64, 232, {}),
    "32 to 232, 1x1": ((1, 1), 32, 232, {}),
    "2 to 16, valid": ((3, 3), 2, 16, {"padding": "VALID", "dilation": (2, 1)}),
}


def problem(rng, layer, dtype):
    """Operands of a layer, and the shape of its result."""
    window, channels, outputs, options = LAYERS[layer]
    diff = {
        "x": rng.standard_normal((2, 21, 37, channels)),
        "kernel": rng.standard_normal((*window, channels, outputs)) / np.sqrt(channels * 9),
    }
    diff = cast(diff, dtype)
    like = like_dense(diff["x"], diff["kernel"], options)
    extra = cast(
        {"base": rng.standard_normal(like.shape), "residual": rng.standard_normal(like.shape)},
        dtype,
    )
    bias = jnp.asarray(rng.standard_normal(outputs), jnp.float32)
    return diff, {"bias": bias, "activation": "relu", **options}, extra


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_every_variant_agrees(rng, layer, dtype):
    diff, options, extra = problem(rng, layer, dtype)
    shape = extra["base"].shape[:3]
    for density, tile in ((0.3, (8, 8)), (1.1, (1, 1))):
        mask = jnp.asarray(rng.random(shape) < density)
        index = js.tile_index(mask, tile)
        hole = jnp.where(mask[..., None], extra["residual"], jnp.nan)  # read at active pixels only
        for starts in ({}, {"base": extra["base"], "residual": hole}):

            def call(diff, index, starts, implementation=None):
                return js.masked_conv(
                    diff["x"],
                    diff["kernel"],
                    index,
                    implementation=implementation,
                    **options,
                    **starts,
                )

            want, results = by_variant(call, diff, index, starts)
            for value in results.values():
                assert_close(value, want, dtype)


@pytest.mark.skipif(PLATFORM != "cuda", reason="boxes are loaded on Hopper")
def test_boxes_take_32_channels_of_16_bits(rng):
    index = js.tile_index(jnp.ones((1, 16, 16), bool), (8, 8))

    def against(channels, dtype="bfloat16"):
        x, kernel = jnp.zeros((1, 16, 16, channels), dtype), jnp.zeros((3, 3, channels, 32), dtype)
        return js.explain(lambda: js.masked_conv(x, kernel, index)).calls[-1].against

    assert "box64" not in against(32)
    assert "box64" not in against(32, "float32")  # 128 bytes
    assert "multiples of 64" in against(96)["box64"]
    assert "multiples of 32" in against(16, "float32")["box64"]
