"""Wrong arguments to masked_conv: what changes, and what the message says and asks for."""

import jax
import jax.numpy as jnp
import numpy as np

import jaxsparse as js

X = np.ones((2, 6, 7, 4), np.float32)
KERNEL = np.ones((3, 3, 4, 8), np.float32)
MASK = np.ones((2, 6, 7), bool)
RESULT = np.ones((2, 6, 7, 8), np.float32)


def call(**changed):
    return js.masked_conv(**{"x": X, "kernel": KERNEL, "mask": MASK, **changed})


FLOATS = "it takes float32, bfloat16 or float16"
INTS = "takes an int or two ints"
SAME = r"the result is float32\[2, 6, 7, 8\]"
IMPLEMENTATION = "it takes None, one of cuda, cpu, reference"

BAD = {
    "x rank": ({"x": X[0]}, ValueError, r"x has shape \(6, 7, 4\); it needs 4 axes, NHWC"),
    "x int": ({"x": X.astype(np.int32)}, TypeError, f"x has dtype int32; {FLOATS}"),
    "x list": ({"x": [1.0]}, TypeError, "x must be an array, not list"),
    "x dtype": (
        {"x": np.full(X.shape, None)},
        TypeError,
        "x has dtype object, which jax does not take",
    ),
    "kernel rank": ({"kernel": KERNEL[0]}, ValueError, "kernel has shape .* it needs 4 axes, HWIO"),
    "kernel dtype": (
        {"kernel": jnp.asarray(KERNEL, jnp.bfloat16)},
        TypeError,
        r"kernel has dtype bfloat16, x has float32: .* kernel\.astype\(x\.dtype\)",
    ),
    "channels": (
        {"kernel": KERNEL[:, :, :3]},
        ValueError,
        r"kernel has 3 input channels; x has 4 and groups=1, so it needs 4 \(x is NHWC .*HWIO",
    ),
    "x NCHW": (
        {"x": X.transpose(0, 3, 1, 2)},
        ValueError,
        r"is x NCHW\? x\.transpose\(0, 2, 3, 1\)",
    ),
    "kernel OIHW": (
        {"kernel": KERNEL.transpose(3, 2, 0, 1)},
        ValueError,
        r"is kernel OIHW\? kernel\.transpose\(2, 3, 1, 0\)",
    ),
    "groups zero": ({"groups": 0}, ValueError, "groups=0; it takes a positive int"),
    "groups odd": (
        {"groups": 3},
        ValueError,
        "kernel has 4 input channels; x has 4, which groups=3 does not divide",
    ),
    "groups bool": ({"groups": True}, TypeError, "groups=True; it takes a positive int"),
    "groups fraction": ({"groups": 1.0}, TypeError, "groups=1.0; it takes a positive int"),
    "mask shape": (
        {"mask": MASK[:, :5]},
        ValueError,
        r"mask has shape \(2, 5, 7\); the result's mask has \(2, 6, 7\): js\.mask\.propagate",
    ),
    "mask dtype": (
        {"mask": MASK.astype(np.int32)},
        TypeError,
        "mask has dtype int32; it takes a bool mask or a TileIndex: `mask != 0` makes one",
    ),
    "mask rank": (
        {"mask": MASK[0]},
        ValueError,
        r"mask has shape \(6, 7\); it needs 3 axes, .*: mask\[None\] holds for the whole batch",
    ),
    "mask with channels": (
        {"mask": MASK[..., None]},
        ValueError,
        r"mask has shape \(2, 6, 7, 1\); .*: mask\[\.\.\., 0\] has them",
    ),
    "mask batch": (
        {"mask": np.ones((3, 6, 7), bool)},
        ValueError,
        r"mask has shape \(3, 6, 7\); .*; leading axes of length 1 hold for the whole batch",
    ),
    "mask words": (
        {"mask": js.pack_mask(MASK)},
        TypeError,
        r"mask has dtype uint32; .*: js\.unpack_mask\(mask, 7\) makes one of words",
    ),
    "mask list": (
        {"mask": MASK.tolist()},
        TypeError,
        r"mask must be an array, not list: jnp\.asarray\(mask\) makes one",
    ),
    "kernel pruned": (
        {"kernel": js.pruned.inspect(KERNEL, kind="conv")},
        TypeError,
        "kernel must be an array, not PrunedWeight",
    ),
    "mask type": (
        {"mask": jax.ShapeDtypeStruct(MASK.shape, bool)},
        TypeError,
        "mask must be an array, not ShapeDtypeStruct",
    ),
    "index shape": (
        {"mask": js.tile_index(MASK[:, :4])},
        ValueError,
        r"mask is a TileIndex of a mask \(2, 4, 7\); the result has \(2, 6, 7\)",
    ),
    "index stack": (
        {"mask": jax.vmap(lambda mask: js.tile_index(mask, (2, 2)))(MASK[None])},
        ValueError,
        r"mask is a stack \(1,\) of TileIndex: take it apart with jax.vmap",
    ),
    "stride zero": ({"strides": 0}, ValueError, "strides=0: each must be at least 1"),
    "stride negative": ({"strides": (1, -1)}, ValueError, "strides=.*: each must be at least 1"),
    "stride type": ({"strides": (1, 2, 3)}, TypeError, f"strides {INTS}"),
    "stride fraction": ({"strides": 1.5}, TypeError, f"strides {INTS}, not 1.5"),
    "stride none": ({"strides": None}, TypeError, f"strides {INTS}"),
    "stride bool": ({"strides": True}, TypeError, f"strides {INTS}"),
    "dilation": ({"dilation": 0}, ValueError, "dilation=0: each must be at least 1"),
    "stride huge": ({"strides": 2**31}, ValueError, r"strides=\(2147483648, .* 1073741824"),
    "dilation huge": (
        {"dilation": (1, 2**30 + 1)},
        ValueError,
        r"dilation=\(1, 1073741825\); it takes 1073741824 at most",
    ),
    "padding huge": (
        {"padding": ((2**41, 2 - 2**41), (1, 1))},
        ValueError,
        r"padding=\(\(2199023255552, .*; it takes 1099511627776 pixels at most",
    ),
    "dilation none": ({"dilation": None}, TypeError, f"dilation {INTS}"),
    "padding word": ({"padding": "MIRROR"}, ValueError, "padding='MIRROR'.*SAME"),
    "padding shape": ({"padding": ((1, 1),)}, TypeError, "padding takes"),
    "padding none": ({"padding": None}, TypeError, "padding takes"),
    "padding fraction": ({"padding": 1.0}, TypeError, "padding takes"),
    "padding part": ({"padding": ((1.9, 1), (1, 1))}, TypeError, "padding takes"),
    "padding words": ({"padding": ("11", "11")}, TypeError, "padding takes"),
    "padding past x": ({"padding": ((-20, 0), (0, 0))}, ValueError, "padding=.* takes more from x"),
    "bias shape": (
        {"bias": np.ones(3, np.float32)},
        ValueError,
        r"bias has shape \(3,\); kernel's outputs need \(8,\)",
    ),
    "bias rank": ({"bias": np.ones((8, 1))}, ValueError, r"(?m)bias .* it needs 1 axis$"),
    "bias dtype": ({"bias": np.ones(8, np.int32)}, TypeError, f"bias has dtype int32; {FLOATS}"),
    "base shape": ({"base": X}, ValueError, rf"base is float32\[2, 6, 7, 4\]; {SAME}"),
    "base dtype": (
        {"base": jnp.asarray(RESULT, jnp.bfloat16)},
        ValueError,
        rf"base is bfloat16\[2, 6, 7, 8\]; {SAME}",
    ),
    "base text": (
        {"base": np.full(RESULT.shape, "a")},
        TypeError,
        "base has dtype <U1, which jax does not take",
    ),
    "residual shape": (
        {"residual": RESULT[..., 1:]},
        ValueError,
        rf"residual is float32\[2, 6, 7, 7\]; {SAME}",
    ),
    "residual dtype": (
        {"residual": RESULT.astype(np.float16)},
        ValueError,
        rf"residual is float16\[2, 6, 7, 8\]; {SAME}: residual\.astype\(jnp\.float32\)",
    ),
    "residual rank": ({"residual": RESULT[0]}, ValueError, "residual has shape .* needs 4 axes"),
    "activation": (
        {"activation": "tanh"},
        ValueError,
        "activation='tanh' is not one of None",
    ),
    "activation function": (
        {"activation": jax.nn.relu},
        TypeError,
        "activation must be a name or None, not .*; it takes None, 'relu'",
    ),
    "precision": ({"precision": "enormous"}, ValueError, "precision='enormous'; it takes None"),
    "result dtype": (
        {"preferred_element_type": jnp.float16},
        TypeError,
        "preferred_element_type=float16; it takes float32",
    ),
    "result word": (
        {"preferred_element_type": "foo"},
        TypeError,
        "preferred_element_type='foo'; it takes float32",
    ),
    "result number": (
        {"preferred_element_type": 3},
        TypeError,
        r"(?m)preferred_element_type=3; it takes float32$",
    ),
    "implementation zero": (
        {"implementation": 0},
        TypeError,
        f"implementation=0; {IMPLEMENTATION}",
    ),
    "record": (
        {"record": True},
        ValueError,
        "record.*activation='relu6'|record.*relu6",
    ),
    "recorder": (
        {"recorder": MASK},
        TypeError,
        "recorder must be a js.recorder.Recorder, not ndarray",
    ),
    "mask none": ({"mask": None}, TypeError, "mask must be an array, not NoneType: it may"),
    "in_channels dtype": (
        {"in_channels": np.arange(4)},
        TypeError,
        "(?m)in_channels has dtype int.*it takes a bool mask: `in_channels != 0` makes one$",
    ),
    "in_channels shape": (
        {"in_channels": np.ones(8, bool)},
        ValueError,
        r"in_channels has shape \(8,\); the channels of x are \(4,\)",
    ),
    "out_channels rank": (
        {"out_channels": np.ones((2, 8), bool)},
        ValueError,
        r"out_channels has shape \(2, 8\); it needs 1 axis, kernel's outputs are \(8,\)",
    ),
    "out_channels groups": (
        {"out_channels": np.ones(8, bool), "groups": 2, "kernel": KERNEL[:, :, :2]},
        ValueError,
        "out_channels takes groups=1, not 2",
    ),
    "recorder of channels": (
        {
            "in_channels": np.ones(4, bool),
            "recorder": js.recorder.Recorder(jnp.zeros((2, 6, 7, 1), jnp.uint8), 4, 6.0),
        },
        ValueError,
        r"recorder: .* pass recorder\.fill\(x\) as x",
    ),
}
