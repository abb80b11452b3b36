"""pruned_conv against XLA's convolution in float64: geometry, groups, layouts, dtypes, gradients,
transforms.
"""

import contextlib
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ops.op_suite import assert_close, cast, rounded

import jaxsparse as js
from jaxsparse.pruned.plan import Tuned
from jaxsparse.select.choice import Reason


def problem(rng, image=(2, 9, 11, 20), window=(3, 3), outputs=24, groups=1, sparsity=0.8):
    shape = (*window, image[3] // groups, outputs)
    fan = max(np.prod(shape[:3]) * (1 - sparsity), 1)
    kernel = rng.standard_normal(shape, np.float32) / np.float32(fan**0.5)
    kernel = np.where(js.prune.magnitude(kernel, sparsity), kernel, 0).astype(np.float32)
    return {"x": rng.standard_normal(image, np.float32), "kernel": kernel}


def run(diff, implementation, plan=None, groups=1, layout="NHWC", **options):
    plan = plan or js.pruned.inspect(np.asarray(diff["kernel"]), kind="conv", groups=groups)
    pruned = plan.from_dense(diff["kernel"])
    x = jnp.asarray(diff["x"])
    x = x.transpose(0, 3, 1, 2) if layout == "NCHW" else x
    sparse = {"cpu": "strips", "cuda": "windows"}.get(implementation)
    with js.config(variant=sparse) if sparse else contextlib.nullcontext():
        y = js.pruned_conv(x, pruned, layout=layout, implementation=implementation, **options)
    return y.transpose(0, 2, 3, 1) if layout == "NCHW" else y


def dense(diff, strides=1, padding="SAME", dilation=1, groups=1):
    pairs = [(v, v) if isinstance(v, int) else v for v in (strides, dilation)]
    if isinstance(padding, int):
        padding = [(padding, padding)] * 2
    return jax.lax.conv_general_dilated(
        diff["x"],
        diff["kernel"],
        pairs[0],
        padding,
        rhs_dilation=pairs[1],
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
        precision="highest",
    )


GEOMETRIES = [
    {},
    {"strides": 2},
    {"strides": (3, 2), "padding": "VALID"},
    {"padding": 3},
    {"dilation": 2},
    {"dilation": (1, 3), "strides": (2, 1), "padding": ((2, 0), (1, 4))},
    {"padding": ((-1, 2), (1, -2))},
]


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("options", GEOMETRIES)
def test_geometry(implementation, rng, options, layout):
    diff = problem(rng)
    got = run(diff, implementation, layout=layout, **options)
    if options.get("padding") == ((-1, 2), (1, -2)):  # XLA:CPU mixes up mixed signs
        cut = np.pad(diff["x"][:, 1:, :-2], ((0, 0), (0, 2), (1, 0), (0, 0)))
        want = dense({**diff, "x": cut}, padding="VALID")
    else:
        want = dense(diff, **options)
    assert_close(got, want, "float32")


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("strides", [1, 2])
@pytest.mark.parametrize("window", [(1, 1), (5, 1), (2, 4), (7, 7)])
def test_windows(implementation, rng, window, strides, layout):
    diff = problem(rng, window=window)
    got = run(diff, implementation, layout=layout, strides=strides)
    assert_close(got, dense(diff, strides), "float32")


@pytest.mark.parametrize("window", [(3, 3), (1, 1)])
@pytest.mark.parametrize("groups", [2, 4, 20])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_groups(implementation, rng, groups, layout, window):
    outputs = 40 if groups == 20 else 24
    diff = problem(rng, window=window, groups=groups, outputs=outputs, sparsity=0.5)
    got = run(diff, implementation, layout=layout, groups=groups)
    assert_close(got, dense(diff, groups=groups), "float32")


@pytest.mark.parametrize("image", [(1, 1, 1, 5), (3, 7, 7, 40), (1, 14, 300, 6), (1, 40, 40, 33)])
@pytest.mark.parametrize("strides", [1, 2])
def test_images(implementation, rng, image, strides):
    diff = problem(rng, image)
    assert_close(run(diff, implementation, strides=strides), dense(diff, strides), "float32")


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_dtypes(implementation, rng, dtype, layout):
    diff = problem(rng)
    got = run(cast(diff, dtype), implementation, layout=layout)
    assert got.dtype == dtype
    assert_close(got, dense(cast(rounded(diff, dtype), "float32")), dtype)


@pytest.mark.parametrize("activation", ["relu", "relu6", "silu", "gelu"])
def test_bias_and_activation(implementation, rng, activation):
    diff = problem(rng)
    bias = rng.standard_normal(24, np.float32)
    got = run(diff, implementation, bias=bias, activation=activation)
    want = getattr(jax.nn, activation)(dense(diff) + bias)
    assert_close(got, want, "float32")


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("options", GEOMETRIES[:6])
def test_grad(implementation, rng, options, layout):
    diff = cast(problem(rng), "float32")
    plan = js.pruned.inspect(np.asarray(diff["kernel"]), kind="conv")
    kept = np.asarray(plan.to_dense()) != 0
    cos = lambda y: jnp.sum(jnp.sin(y))  # noqa: E731
    got = jax.grad(lambda d: cos(run(d, implementation, plan, layout=layout, **options)))(diff)
    want = jax.grad(
        lambda d: cos(dense({**d, "kernel": jnp.where(kept, d["kernel"], 0)}, **options))
    )(diff)
    for name in diff:
        assert_close(got[name], want[name], "float32", scale=4.0)


def test_grad_of_groups(implementation, rng):
    diff = cast(problem(rng, groups=4, sparsity=0.5), "float32")
    plan = js.pruned.inspect(np.asarray(diff["kernel"]), kind="conv", groups=4)
    kept = np.asarray(plan.to_dense()) != 0
    got = jax.grad(lambda d: jnp.sum(jnp.sin(run(d, implementation, plan))))(diff)
    want = jax.grad(
        lambda d: jnp.sum(
            jnp.sin(dense({**d, "kernel": jnp.where(kept, d["kernel"], 0)}, groups=4))
        )
    )(diff)
    for name in diff:
        assert_close(got[name], want[name], "float32", scale=4.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("options", [{}, {"strides": 2}, {"dilation": 2, "layout": "NCHW"}])
def test_nan_and_inf_reach_only_the_windows_that_hold_them(implementation, rng, options, bad):
    if implementation == "cuda":
        pytest.skip("XLA's algorithms run such small layers; test_pruned_conv_cuda.py has windows")
    diff = problem(rng)
    held = problem(rng, sparsity=0.0)
    held["x"], held["kernel"] = np.zeros_like(held["x"]), np.ones_like(held["kernel"])
    held["x"][1, 4, 5, 3] = 1
    holds = np.asarray(run(held, "reference", **options)).any(-1)
    want = np.asarray(run(diff, implementation, **options))
    diff["x"][1, 4, 5, 3] = bad
    got = np.asarray(run(diff, implementation, **options))
    assert not np.isfinite(got[holds]).all()
    assert_close(got[~holds], want[~holds], "float32")


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="its executors are the CPU's")
def test_what_a_1x1_convolution_runs_is_what_is_said(rng):
    """It runs as a product: explained, demanded and tuned by the name that the user called."""
    diff = problem(rng, window=(1, 1))
    plan, x = js.pruned.inspect(diff["kernel"], kind="conv"), jnp.asarray(diff["x"])

    def ran(plan):
        f = lambda x: js.pruned_conv(x, plan)  # noqa: E731
        text = str(js.explain(f, x))
        sparse = "jaxsparse_pruned_matmul" in jax.jit(f).lower(x).as_text()
        assert ("ran dense" in text) != sparse
        assert text.startswith("pruned_conv ")
        return text

    default = ran(plan)
    for name in ("dense", "strips"):
        for op in ("pruned_conv", "pruned_matmul"):
            variant = next(v for v in js.variants(op) if v.name == name and v.platform == "cpu")
            with js.config(variant=variant):
                text = ran(plan)
            assert text == default if op == "pruned_matmul" else f"ran {name}" in text
        call = ("cpu", (2 * 9 * 11, 20), "float32", None, False, name, None, 1.0)
        tuned = dataclasses.replace(plan.plan, tuned=(Tuned(*call),))
        text = ran(dataclasses.replace(plan, plan=tuned))
        assert f"ran {name}" in text
        assert Reason.PLAN.value in text


@settings(max_examples=15)
@given(
    data=st.data(),
    image=st.tuples(*(st.integers(0, n) for n in (2, 20, 70, 20))),
    window=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    outputs=st.integers(0, 40),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.sampled_from(["SAME", "VALID", 2]),
    layout=st.sampled_from(["NHWC", "NCHW"]),
)
def test_any_shape(implementation, data, image, window, outputs, strides, padding, layout):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**31)))
    diff = problem(rng, image, window, outputs)
    got = run(diff, implementation, strides=strides, padding=padding, layout=layout)
    if 0 in image or 0 in got.shape or not outputs:
        assert not np.asarray(got).any()
    else:
        assert_close(got, dense(diff, strides, padding), "float32")
