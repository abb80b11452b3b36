"""`residual=` of masked_conv: a skip connection fused in, in every variant."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ops.masked_conv.oracle import masked_conv as oracle
from ops.op_suite import assert_close, cast, rounded

import jaxsparse as js
from jaxsparse.core.device import home_platform
from jaxsparse.select.variants import table

SHAPE = (2, 9, 37)


def make_inputs(rng, density, channels=16, outputs=24):
    mask = rng.random(SHAPE) < density if density < 1 else np.ones(SHAPE, bool)
    diff = {
        "x": rng.standard_normal((*SHAPE, channels), np.float32),
        "kernel": rng.standard_normal((3, 3, channels, outputs), np.float32) / 12,
        "bias": rng.standard_normal(outputs, np.float32),
        "base": rng.standard_normal((*SHAPE, outputs), np.float32),
        "residual": rng.standard_normal((*SHAPE, outputs), np.float32),
    }
    return diff, mask


def apply(diff, mask, **options):
    arrays = {k: diff[k] for k in ("bias", "base", "residual") if k in diff}
    return js.masked_conv(diff["x"], diff["kernel"], mask, **arrays, **options)


def want_of(diff, mask, activation=None):
    """The oracle's linear convolution, then what this option adds to it."""
    linear = oracle(diff["x"], diff["kernel"], mask, bias=diff.get("bias"))
    y = linear + np.where(mask[..., None], np.asarray(diff["residual"], np.float64), 0)
    y = {None: lambda v: v, "relu": lambda v: np.maximum(v, 0), "silu": _silu}[activation](y)
    return np.where(mask[..., None], y, np.asarray(diff["base"], np.float64))


def _silu(y):
    return y / (1 + np.exp(-y))


CASES = {
    "narrow": {"channels": 3, "outputs": 32},
    "odd": {"channels": 5, "outputs": 7},
    "depthwise": {"channels": 16, "outputs": 16, "groups": 16},
    "wide": {"channels": 64, "outputs": 72},
    "wider": {"channels": 64, "outputs": 264},
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("tile", [(1, 1), (8, 8)])
def test_every_variant(rng, name, dtype, tile):
    case = dict(CASES[name])
    groups = case.pop("groups", 1)
    diff, mask = make_inputs(rng, 0.3, **case)
    diff["kernel"] = diff["kernel"][:, :, : case["channels"] // groups]
    exact = rounded(diff, dtype)
    linear = oracle(exact["x"], exact["kernel"], mask, bias=exact["bias"], groups=groups)
    y = np.maximum(linear + exact["residual"], 0)
    want = np.where(mask[..., None], y, exact["base"])
    index = js.tile_index(jnp.asarray(mask), tile)
    ran = []
    for variant in [*table("masked_conv", home_platform()), "dense", None]:
        how = {"selection": "device"} if variant is None else {"variant": variant}
        try:
            with js.config(**how):
                got = apply(cast(diff, dtype), index, groups=groups, activation="relu")
        except ValueError as why:
            if "does not take this problem" not in str(why):
                raise
            continue
        assert_close(got, want, dtype)
        ran.append(variant)
    assert {"dense", None} <= {*ran}
    assert len(ran) >= 3


@pytest.mark.parametrize("precision", [None, "highest"])
def test_float32_result_of_bfloat16(implementation, rng, precision):
    diff, mask = make_inputs(rng, 0.4)
    half = cast(diff, "bfloat16")
    like = {k: jnp.asarray(diff[k]) for k in ("base", "residual")}
    got = apply(
        {**half, **like},
        jnp.asarray(mask),
        preferred_element_type=jnp.float32,
        precision=precision,
        implementation=implementation,
    )
    exact = rounded({k: diff[k] for k in ("x", "kernel", "bias")}, "bfloat16")
    assert_close(got, want_of({**diff, **exact}, mask), "float32")


def test_nothing_is_read_under_an_unset_pixel(implementation, rng):
    """NaN there reaches neither the result nor a gradient."""
    diff, mask = make_inputs(rng, 0.3)
    holes = {**diff, "residual": np.where(mask[..., None], diff["residual"], np.nan)}
    weight = jnp.asarray(rng.standard_normal(diff["base"].shape), jnp.float32)

    def loss(d, activation):
        y = apply(d, jnp.asarray(mask), activation=activation, implementation=implementation)
        return jnp.sum(y * weight)

    got = apply(cast(holes, "float32"), jnp.asarray(mask), implementation=implementation)
    assert_close(got, want_of(diff, mask), "float32")
    for activation in ("relu", "silu"):
        gradient = jax.grad(loss)
        a = gradient(cast(holes, "float32"), activation)
        b = gradient(cast(diff, "float32"), activation)
        for name in diff:
            np.testing.assert_array_equal(a[name], b[name], err_msg=name)
        assert not np.asarray(a["residual"])[~mask].any()


@pytest.mark.parametrize("donated", [True, False])
def test_one_array_as_base_and_residual(implementation, rng, donated):
    """The result takes the base's buffer; the residual is read as it was."""
    diff, mask = make_inputs(rng, 0.4)
    diff["residual"] = diff["base"]

    def run(base, rest):
        both = {**rest, "base": base, "residual": base}
        return apply(both, jnp.asarray(mask), activation="relu", implementation=implementation)

    arrays = cast(diff, "float32")
    base = arrays.pop("base")
    got = jax.jit(run, donate_argnums=0 if donated else ())(base + 0, arrays)
    assert_close(got, want_of(diff, mask, "relu"), "float32")


def test_the_input_as_residual_in_a_chain(implementation, rng):
    """Blocks x + conv(conv(x)), each result in the buffer of what it was before."""
    x = rng.standard_normal((*SHAPE, 16), np.float32)
    kernels = rng.standard_normal((6, 3, 3, 16, 16), np.float32) / 12
    bases = rng.standard_normal((6, *SHAPE, 16), np.float32)
    mask = rng.random(SHAPE) < 0.4

    @jax.jit
    def run(x, kernels, bases):
        for i in range(0, 6, 2):
            options = {"activation": "relu", "implementation": implementation}
            y = js.masked_conv(x, kernels[i], jnp.asarray(mask), base=bases[i], **options)
            x = js.masked_conv(
                y, kernels[i + 1], jnp.asarray(mask), base=bases[i + 1], residual=x, **options
            )
        return x

    want = x.astype(np.float64)
    for i in range(0, 6, 2):
        y = oracle(want, kernels[i], mask, base=bases[i], activation="relu")
        parts = {"x": y, "kernel": kernels[i + 1], "residual": want, "base": bases[i + 1]}
        want = want_of(parts, mask, "relu")
    assert_close(run(jnp.asarray(x), kernels, bases), want, "float32", scale=4.0)


def test_with_a_recorder(implementation, rng):
    diff, mask = make_inputs(rng, 0.5, outputs=16)
    diff["x"] = np.where(rng.random((*SHAPE, 1)) < 0.3, 0, np.clip(diff["x"], 0, 6))
    recorder = js.recorder.probe(jnp.asarray(diff["x"]), 16, 6.0)
    got = apply(
        cast(diff, "float32"), jnp.asarray(mask), recorder=recorder, implementation=implementation
    )
    assert_close(got, want_of(diff, mask), "float32")
