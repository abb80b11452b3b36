"""Calls that are given one thing for another: the error names the argument and what to pass."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsparse as js

IMAGE, KERNEL = jnp.ones((1, 8, 8, 16)), jnp.ones((3, 3, 16, 8))
ROW, UP = jnp.ones((1, 16)), jnp.ones((16, 64))


def routing() -> js.Routing:
    return js.route(jnp.zeros((8, 2), jnp.int32), 4)


@pytest.mark.parametrize(
    ("call", "error", "fix"),
    [
        (
            lambda: js.grouped_matmul(jnp.ones((8, 16)), jnp.ones((4, 16, 8)), routing()),  # type: ignore[arg-type]
            TypeError,
            "group_sizes is a Routing; it takes an array: routing.group_sizes",
        ),
        (
            lambda: js.masked_conv(IMAGE, KERNEL, js.token_index(jnp.ones((1, 8), bool))),
            ValueError,
            r"mask .*: js.tile_index\(mask\) makes one",
        ),
        (
            lambda: js.masked_conv(
                IMAGE[:, :2, :2], KERNEL, jnp.ones((1, 2, 2), bool), padding="VALID"
            ),
            ValueError,
            "mask .*: the window is larger than the image",
        ),
        (
            lambda: js.block_masks.causal(32) | js.block_masks.causal(32, block_size=16),
            ValueError,
            r"blocks and shapes must agree: make both with block_size=\(128, 128\)",
        ),
        (
            lambda: js.sparse_ffn(ROW, UP.T, UP.T),
            ValueError,
            r"w_up .* needs \[16, f\]: transposed_up=True takes this one",
        ),
        (
            lambda: js.sparse_ffn(ROW, UP, UP.T, transposed_up=True),
            ValueError,
            "w_up .*: transposed_up=False takes this one",
        ),
        (
            lambda: js.variants(js.masked_conv),  # type: ignore[arg-type]
            ValueError,
            r"op is the function masked_conv; it takes the name: js.variants\('masked_conv'\)",
        ),
        (
            lambda: js.pruned.inspect(np.ones((8, 8), np.int32)),
            TypeError,
            r"w has dtype int32; .*: w.astype\('float32'\) makes one",
        ),
    ],
)
def test_the_error_names_the_fix(call, error, fix):
    with pytest.raises(error, match=fix):
        call()


def test_no_outputs_have_no_inputs():
    found = js.pruned.statistics(js.pruned.inspect(np.ones((8, 0), np.float32)))
    assert found.empty_rows == 0


@pytest.mark.skipif(jax.default_backend() == "gpu", reason="the ladder of a CPU")
def test_tells_where_a_ladder_ends():
    """Of many tokens of `sparse_ffn` on a CPU, up to which density the lists run."""
    told = js.explain(js.sparse_ffn, jnp.ones((64, 64)), jnp.ones((64, 256)), jnp.ones((256, 64)))
    assert "up to 3 %, then dense" in str(told)
