"""masked_conv in the op suite: bare, and with everything that it fuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ops.masked_conv.bad_calls import BAD, call
from ops.masked_conv.channels import cases as channel_cases
from ops.masked_conv.oracle import masked_conv as oracle
from ops.op_sharding import Split
from ops.op_suite import OpSpec, OpSuite, assert_close, cast

import jaxsparse as js

SHAPE = (2, 7, 21)
CHANNELS, OUTPUTS = 16, 24


def draw(rng, fill, extras=()):
    scale = np.float32((9 * CHANNELS) ** -0.5)
    made = {
        "x": rng.standard_normal((*SHAPE, CHANNELS), np.float32),
        "kernel": rng.standard_normal((3, 3, CHANNELS, OUTPUTS), np.float32) * scale,
        "bias": rng.standard_normal(OUTPUTS, np.float32),
        "base": rng.standard_normal((*SHAPE, OUTPUTS), np.float32),
        "residual": rng.standard_normal((*SHAPE, OUTPUTS), np.float32),
    }
    return {k: made[k] for k in ("x", "kernel", *extras)} | {"mask": rng.random(SHAPE) < fill}


def apply(operands, implementation, **options):
    return js.masked_conv(**operands, implementation=implementation, **options)


def want(operands, mask=None, activation=None):
    mask = operands["mask"] if mask is None else mask
    given = {k: operands.get(k) for k in ("bias", "base", "residual")}
    return oracle(operands["x"], operands["kernel"], mask, activation=activation, **given)


def reach(operands):
    """Pixels of x that no active pixel's window holds, and residuals that are not added."""
    padded = np.pad(operands["mask"], ((0, 0), (1, 1), (1, 1)))
    height, width = SHAPE[1:]
    read = np.any([padded[:, y : y + height, x : x + width] for y in range(3) for x in range(3)], 0)
    free = {"x": np.broadcast_to(~read[..., None], operands["x"].shape)}
    if "residual" in operands:
        unset = ~operands["mask"][..., None]
        free["residual"] = np.broadcast_to(unset, operands["residual"].shape)
    return free


def overflow(rng, extras=(), activation=None):
    operands = draw(rng, 0.6, extras)
    mask = operands["mask"]
    index = js.tile_index(jnp.asarray(mask), (2, 2), capacity=3, ordered=True)
    assert bool(index.overflow)
    b, y, x = np.indices(mask.shape)
    ids = (b * -(-mask.shape[1] // 2) + y // 2) * -(-mask.shape[2] // 2) + x // 2
    listed = np.isin(ids, np.unique(ids[mask])[:3]) & mask
    index = jax.tree.map(np.asarray, index)
    return operands | {"mask": index}, want(operands, listed, activation), "capacity of 3"


class TestMaskedConv(OpSuite):
    spec = OpSpec(
        name="masked_conv",
        serves=(js.masked_conv,),
        draw=draw,
        apply=apply,
        oracle=want,
        floats=("x", "kernel"),
        sharded=frozenset({"x", "mask"}),
        split=Split({"x": 0, "mask": 0}),
        empty=lambda rng: {k: v if k == "kernel" else v[:0] for k, v in draw(rng, 0.5).items()},
        unread=reach,
        overflow=overflow,
        call=call,
        bad=BAD,
    )


ALL = ("bias", "base", "residual")


class TestMaskedConvFused(OpSuite):
    """With bias, base and residual, and an activation whose gradient needs the pre-activation."""

    spec = OpSpec(
        name="masked_conv, fused",
        serves=(js.masked_conv,),
        draw=lambda rng, fill: draw(rng, fill, ALL),
        apply=lambda operands, name: apply(operands, name, activation="silu"),
        oracle=lambda operands: want(operands, activation="silu"),
        floats=("x", "kernel", *ALL),
        sharded=frozenset({"x", "base", "residual", "mask"}),
        split=Split({"x": 0, "base": 0, "residual": 0, "mask": 0}),
        empty=lambda rng: {
            k: v if k in ("kernel", "bias") else v[:0] for k, v in draw(rng, 0.5, ALL).items()
        },
        unread=reach,
        overflow=lambda rng: overflow(rng, ALL, "silu"),
        call=call,
    )

    @pytest.mark.parametrize("align", ["grid", "component"])
    def test_tiles(self, implementation, rng, align):
        operands = draw(rng, 0.3, ALL)
        mask = jnp.asarray(operands.pop("mask"))
        given = cast(operands, "float32")
        for tile in ((1, 1), (2, 4), (3, 5), (8, 16)):
            index = js.tile_index(mask, tile, align=align)
            got = apply(given | {"mask": index}, implementation, activation="silu")
            assert_close(got, want(operands, np.asarray(mask), "silu"), "float32")


class TestMaskedConvChannels(OpSuite):
    """With masks of channels, of two widths each; a mesh splits the outputs."""

    spec = OpSpec(
        name="masked_conv, channels",
        serves=(js.masked_conv,),
        draw=channel_cases.draw,
        apply=apply,
        oracle=channel_cases.want,
        floats=("x", "kernel", "base"),
        sharded=frozenset({"x", "base", "mask"}),
        split=Split({"kernel": 3, "base": 3, "out_channels": 0}, results=(3,)),
        empty=lambda rng: {
            k: v[:0] if k in ("x", "base", "mask") else v
            for k, v in channel_cases.draw(rng, 0.5).items()
        },
        unread=channel_cases.unread,
        call=call,
        inapplicable={
            "overflow_is_flagged_and_written_nowhere": "the index is that of masked_conv, bare",
            "wrong_arguments": "masked_conv, bare, is given those of channels, too",
            "check_grads_in_both_modes": "the rules are masked_conv's, with one operand more",
            "jacfwd_and_hessian": "the rules are masked_conv's, with one operand more",
        },
    )
