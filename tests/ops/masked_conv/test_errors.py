"""Odd input to masked_conv: the right result, or an error."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ops.masked_conv.bad_calls import MASK, call
from ops.op_suite import assert_close

import jaxsparse as js
from jaxsparse.core.geometry import Geometry
from jaxsparse.ops.masked_conv.native import check_window
from jaxsparse.ops.masked_conv.params import ConvParams

ALIKE = [
    {"strides": np.int64(1)},
    {"strides": jnp.int32(1)},
    {"strides": (np.int64(1), np.int64(1))},
    {"strides": np.array([1, 1])},
    {"dilation": np.int8(1)},
    {"padding": np.int64(1)},
    {"padding": np.array([[1, 1], [1, 1]])},
    {"groups": np.int64(1)},
]


@pytest.mark.parametrize("changed", ALIKE, ids=str)
def test_every_integer_is_one(changed):
    np.testing.assert_array_equal(call(**changed), call())


def test_a_stack_of_indices_has_no_tiles_of_its_own():
    stack = jax.vmap(lambda mask: js.tile_index(mask, (2, 2)))(MASK[None])
    for method in (stack.tile_mask, stack.cover, stack.density):
        with pytest.raises(ValueError, match="is a stack"):
            method()


def test_offsets_past_int32():
    x = jax.ShapeDtypeStruct((2**16, 2**9, 2**7, 1), jnp.float32)
    mask = jax.ShapeDtypeStruct((2**16, 2**9, 2**7), jnp.bool_)
    with pytest.raises(ValueError, match=r"x has shape .* 2\^31"):
        jax.eval_shape(js.masked_conv, x, jax.ShapeDtypeStruct((3, 3, 1, 1), jnp.float32), mask)


LONG = (70_000, 1)  # a window; a CPU convolves it


def test_the_gradient_of_x_takes_fewer_taps_than_the_convolution():
    kernel = jnp.zeros((*LONG, 4, 8), jnp.float32)
    with pytest.raises(ValueError, match=r"^kernel has a window of 70000x1; the gradient"):
        jax.grad(lambda x: call(x=x, kernel=kernel).sum())(jnp.ones((2, 6, 7, 4)))


@pytest.mark.parametrize(
    ("window", "options", "message"),
    [
        ((2**20, 1), {}, None),
        ((2**20, 2), {}, "kernel has a window of 1048576x2; on a GPU masked_conv takes 1048576 ta"),
        ((3, 3), {"dilation": (1, 2**28)}, "kernel has a window of 3x3, dilation=.*: 805306368"),
        ((3, 3), {"padding": ((0, 0), (2**30, 0))}, "padding=.*: 1073741824 pixels along axis 2"),
        ((3, 3), {"strides": (2**29, 1)}, "strides=.* over .6, 7. pixels: 3221225472 pixels alon"),
        ((2**30 + 1, 0), {}, "kernel has shape .1073741825, .*; on a GPU .* takes 1073741824 alon"),
    ],
)
def test_windows_that_a_gpu_does_not_take(window, options, message):
    given = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1)} | options
    geometry = Geometry(**given, lhs_dilation=(1, 1), groups=1)
    params = ConvParams(geometry, None, "default", "float32")
    shapes = (2, 6, 7, 4), (*window, 4, 8), (6, 7)
    if message is None:
        check_window(params, *shapes)
        return
    with pytest.raises(ValueError, match=f"^{message}"):
        check_window(params, *shapes)


def test_hand_made_index_reads_and_writes_in_bounds(implementation):
    good = js.tile_index(MASK, (2, 2), ordered=True)
    want = np.asarray(call(mask=good, implementation=implementation))
    wild = jnp.concatenate([good.ids, jnp.asarray([-7, 2**30, 10**9, -(2**31)], jnp.int32)])
    import dataclasses

    index = dataclasses.replace(
        good, ids=wild, count=jnp.int32(wild.shape[0]), capacity=wild.shape[0]
    )
    np.testing.assert_allclose(call(mask=index, implementation=implementation), want, rtol=1e-5)


def test_donated_and_transposed_operands(implementation, rng):
    x = jnp.asarray(rng.standard_normal((4, 7, 6, 2), np.float32)).transpose(3, 2, 1, 0)
    base = jnp.full((2, 6, 7, 8), 3.0)
    mask = jnp.asarray(rng.random((2, 6, 7)) < 0.5)

    def run(base):
        return call(x=x, mask=mask, base=base, implementation=implementation)

    # Without jit XLA may take another convolution for the reference.
    want = (jax.jit(run) if implementation == "reference" else run)(base)
    f = jax.jit(run, donate_argnums=0)
    if implementation == "reference" and jax.default_backend() == "gpu":
        assert_close(f(base + 0), want, "float32")
    else:
        np.testing.assert_array_equal(f(base + 0), want)


def test_one_int_for_both_sides_of_an_axis():
    np.testing.assert_array_equal(call(padding=(1, (1, 1))), call(padding=1))
