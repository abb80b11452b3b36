"""What the store of a tile does to 16-bit results: bounds, gates and a residual, on sums past the
largest number of the dtype and on NaN.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from ops.op_variants import every, names

import jaxsparse as js

TOLERANCE = {"bfloat16": 2.0**-7, "float16": 2.0**-9}
ACTIVATIONS = {
    None: lambda y: y,
    "relu": lambda y: np.maximum(y, 0),
    "relu6": lambda y: np.minimum(np.maximum(y, 0), 6),
    "silu": lambda y: y / (1 + np.exp(-y)),
    "gelu": lambda y: 0.5 * y * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y**3))),
}


def window_sums(x, kernel):
    """3x3, "SAME", in float64."""
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    height, width = x.shape[1:3]
    taps = [(dy, dx) for dy in range(3) for dx in range(3)]
    return sum(padded[:, dy : dy + height, dx : dx + width] @ kernel[dy, dx] for dy, dx in taps)


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("activation", list(ACTIVATIONS))
@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_every_variant_stores_what_the_formula_says(rng, dtype, activation, residual):
    shape, outputs = (2, 13, 20), 136
    x = rng.standard_normal((*shape, 64))
    x[1, 5, 9, 0] = np.nan
    kernel = rng.standard_normal((3, 3, 64, outputs)) / 4
    kernel[..., 3] *= 3e4  # sums past float16
    x, kernel = jnp.asarray(x, dtype), jnp.asarray(kernel, dtype)
    bias = jnp.asarray(rng.standard_normal(outputs), jnp.float32)
    added = jnp.asarray(rng.standard_normal((*shape, outputs)), dtype) if residual else None
    mask = rng.random(shape) < 0.4
    mask[1, 4:7, 8:11] = True

    with np.errstate(over="ignore", invalid="ignore"):
        y = window_sums(np.asarray(x, np.float64), np.asarray(kernel, np.float64))
        y = y + np.asarray(bias, np.float64)
        y = ACTIVATIONS[activation](y if added is None else y + np.asarray(added, np.float64))
        want = np.asarray(np.where(mask[..., None], y, 0).astype(x.dtype), np.float64)
    assert np.isnan(want[1, 4:7, 8:11]).all()
    assert dtype == "bfloat16" or activation == "relu6" or np.isinf(want).any()

    for tiles in ((1, 1), (8, 8)):
        index = js.tile_index(jnp.asarray(mask), tiles)

        def call(x, kernel, index, bias, added):
            return js.masked_conv(
                x, kernel, index, bias=bias, residual=added, activation=activation
            )

        given = (x, kernel, index, bias, added)
        # "dense" is XLA's, which rounds the sum before the activation.
        results = every(call, names(call, *given, without=("dense",)))(*given)
        assert results
        for name, result in results.items():
            got = np.asarray(result, np.float64)
            usual = np.isfinite(want)
            np.testing.assert_array_equal(got[~usual], want[~usual], err_msg=name)
            error = np.abs(got[usual] - want[usual]) / np.maximum(1, np.abs(want[usual]))
            assert error.max() <= TOLERANCE[dtype], (name, tiles)
