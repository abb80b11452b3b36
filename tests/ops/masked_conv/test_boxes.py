"""Tiles whose sides are multiples of 8, whole 128 bytes of channels: every variant that takes them
agrees with the reference; on Hopper those that load boxes are among them.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ops.op_suite import assert_close, cast, like_dense
from ops.op_variants import PLATFORM, every, names

import jaxsparse as js

WINDOWS = {
    "3x3": ((3, 3), {}),
    "1x1": ((1, 1), {}),
    "2x2": ((2, 2), {}),
    "5x5": ((5, 5), {}),
    "stride 2": ((3, 3), {"strides": (2, 2)}),
    "stride 3 and 1": ((3, 3), {"strides": (3, 1)}),
    "dilated": ((3, 3), {"dilation": (2, 2)}),
    "valid": ((3, 3), {"padding": "VALID"}),
}


def problem(rng, window, options, dtype, *, tile=(8, 8), capacity=None):
    """A function of the mask, with one of the reference, and the shape of the mask."""
    diff = cast(
        {
            "x": rng.standard_normal((2, 21, 37, 64)),
            "kernel": rng.standard_normal((*window, 64, 64)) / 20,
            "bias": rng.standard_normal(64),
        },
        dtype,
    )
    like = like_dense(diff["x"], diff["kernel"], options)

    def call(mask, implementation=None):
        index = js.tile_index(mask, tile, capacity=capacity)
        bias = diff["bias"].astype(jnp.float32)
        return js.masked_conv(
            diff["x"], diff["kernel"], index, bias=bias, implementation=implementation, **options
        )

    return call, like.shape[:3]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_every_variant_agrees(rng, window, dtype):
    call, shape = problem(rng, *WINDOWS[window], dtype)
    masks = [jnp.asarray(rng.random(shape) < density) for density in (0.0, 0.1, 0.6, 1.1)]
    run = every(call, names(call, masks[0]))
    reference = jax.jit(lambda mask: call(mask, "reference"))
    for mask in masks:
        want, results = reference(mask), run(mask)
        assert results
        for value in results.values():
            assert_close(value, want, dtype)


@pytest.mark.parametrize("tile", [(8, 16), (16, 16), (1, 1)])
def test_zeros_beside_the_products(rng, tile):
    """Without a base every pixel is written: unset ones and those of a list that overflowed."""
    for capacity in (None, 3):
        call, shape = problem(rng, (3, 3), {}, "float32", tile=tile, capacity=capacity)
        mask = jnp.asarray(rng.random(shape) < 0.5)
        for got in map(np.asarray, every(call, names(call, mask))(mask).values()):
            assert np.isfinite(got).all()
            assert not got[~np.asarray(mask)].any()
            if capacity is not None:
                assert (got != 0).any(-1).sum() <= capacity * tile[0] * tile[1]


def test_boxes_refuse_what_the_gather_serves(rng):
    call, shape = problem(rng, (3, 3), {}, "float32", tile=(4, 8))
    mask = jnp.asarray(rng.random(shape) < 0.5)
    against = js.explain(call, mask).calls[-1].against
    if PLATFORM == "cuda":
        assert "multiples of 8" in against["box64"]
