"""Bad input: an error that names the argument, or the right result."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ops.op_suite import assert_close

import jaxsparse as js

X = jnp.ones((2, 6, 7, 4))
KERNEL = jnp.ones((3, 3, 4, 8))
MASK = jnp.ones((2, 6, 7), bool)

CASES = {
    "x rank": ({"x": X[0]}, ValueError, "x has shape"),
    "x int": ({"x": X.astype(jnp.int32)}, TypeError, "x has dtype int32"),
    "x list": ({"x": [1.0]}, TypeError, "x must be an array"),
    "kernel rank": ({"kernel": KERNEL[0]}, ValueError, "kernel has shape"),
    "kernel dtype": (
        {"kernel": KERNEL.astype(jnp.bfloat16)},
        TypeError,
        "kernel has dtype bfloat16",
    ),
    "channels": ({"kernel": KERNEL[:, :, :3]}, ValueError, "kernel has 3 input channels"),
    "groups zero": ({"groups": 0}, ValueError, "groups=0"),
    "groups odd": ({"groups": 3}, ValueError, "kernel has 4 input channels"),
    "mask shape": ({"active": MASK[:, :5]}, ValueError, "active has shape"),
    "mask dtype": ({"active": MASK.astype(jnp.int32)}, TypeError, "active has dtype int32"),
    "mask rank": ({"active": MASK[0]}, ValueError, "active has shape"),
    "stride zero": ({"strides": 0}, ValueError, "strides=0"),
    "stride negative": ({"strides": (1, -1)}, ValueError, "strides="),
    "stride type": ({"strides": (1, 2, 3)}, TypeError, "strides takes"),
    "dilation": ({"dilation": 0}, ValueError, "dilation=0"),
    "padding word": ({"padding": "MIRROR"}, ValueError, "padding='MIRROR'"),
    "padding shape": ({"padding": ((1, 1),)}, TypeError, "padding takes"),
    "bias shape": ({"bias": jnp.ones(3)}, ValueError, "bias has shape"),
    "bias dtype": ({"bias": jnp.ones(8, jnp.int32)}, TypeError, "bias has dtype"),
    "base shape": ({"base": jnp.ones((2, 6, 7, 4))}, ValueError, "base is float32"),
    "base dtype": ({"base": jnp.ones((2, 6, 7, 8), jnp.bfloat16)}, ValueError, "base is bfloat16"),
    "activation": ({"activation": "tanh"}, ValueError, "activation='tanh'"),
    "precision": ({"precision": "enormous"}, ValueError, "precision='enormous'"),
    "result dtype": ({"preferred_element_type": jnp.float16}, TypeError, "preferred_element_type"),
    "implementation": ({"implementation": "tpu"}, ValueError, "'tpu' is none of"),
    "implementation type": ({"implementation": 3}, TypeError, "implementation=3; it takes"),
    "implementation zero": ({"implementation": 0}, TypeError, "implementation=0; it takes"),
    "result word": ({"preferred_element_type": "foo"}, TypeError, "preferred_element_type='foo'"),
    "result number": ({"preferred_element_type": 3}, TypeError, r"(?m)=3; it takes float32$"),
    "stride fraction": ({"strides": 1.5}, TypeError, "strides takes an int or two ints, not 1.5"),
    "stride none": ({"strides": None}, TypeError, "strides takes"),
    "stride bool": ({"strides": True}, TypeError, "strides takes"),
    "dilation none": ({"dilation": None}, TypeError, "dilation takes"),
    "padding none": ({"padding": None}, TypeError, "padding takes"),
    "padding fraction": ({"padding": 1.0}, TypeError, "padding takes"),
    "padding part": ({"padding": ((1.9, 1), (1, 1))}, TypeError, "padding takes"),
    "padding words": ({"padding": ("11", "11")}, TypeError, "padding takes"),
    "groups bool": ({"groups": True}, TypeError, "groups=True"),
    "groups fraction": ({"groups": 1.0}, TypeError, "groups=1.0"),
    "activation function": ({"activation": jax.nn.relu}, TypeError, "activation must be a name"),
    "active type": (
        {"active": jax.ShapeDtypeStruct(MASK.shape, bool)},
        TypeError,
        "active must be an array, not ShapeDtypeStruct",
    ),
    "x dtype": ({"x": np.full(X.shape, None)}, TypeError, "x has dtype object"),
    "base dtype unknown": ({"base": np.full((2, 6, 7, 8), "a")}, TypeError, "base has dtype <U1"),
    "bias rank": ({"bias": jnp.ones((8, 1))}, ValueError, r"(?m)it needs 1 axis$"),
}

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


def call(**changed):
    arguments = {"x": X, "kernel": KERNEL, "active": MASK, **changed}
    return js.masked_conv(
        arguments.pop("x"), arguments.pop("kernel"), arguments.pop("active"), **arguments
    )


@pytest.mark.parametrize("name", CASES)
def test_error_names_the_argument(name):
    changed, error, words = CASES[name]
    with pytest.raises(error, match=words):
        call(**changed)
    with pytest.raises(error, match=words):
        jax.eval_shape(lambda: call(**changed))


def test_named_implementation_that_cannot_run_says_why():
    if jax.default_backend() == "gpu":
        pytest.skip("every implementation runs here")
    with pytest.raises(ValueError, match=r"cuda: (JAX sees no CUDA device|this build has no cuda)"):
        call(implementation="cuda")
    assert call(implementation=("cuda", "reference")).shape == (2, 6, 7, 8)


def test_index_of_another_shape():
    with pytest.raises(ValueError, match="active is a TileIndex of a mask"):
        call(active=js.tile_index(MASK[:, :4]))


def test_stack_of_indices_is_named():
    stack = jax.vmap(lambda mask: js.tile_index(mask, (2, 2)))(MASK[None])
    with pytest.raises(ValueError, match=r"active is a stack \(1,\) of TileIndex"):
        call(active=stack)
    for method in (stack.tile_mask, stack.cover, stack.density):
        with pytest.raises(ValueError, match="is a stack"):
            method()


def test_offsets_past_int32():
    x = jax.ShapeDtypeStruct((2**16, 2**9, 2**7, 1), jnp.float32)
    mask = jax.ShapeDtypeStruct((2**16, 2**9, 2**7), jnp.bool_)
    with pytest.raises(ValueError, match=r"x has shape .* 2\^31"):
        jax.eval_shape(js.masked_conv, x, jax.ShapeDtypeStruct((3, 3, 1, 1), jnp.float32), mask)


def test_checked_raises_on_overflow():
    index = js.tile_index(MASK, (1, 1), capacity=5)
    call(active=index).block_until_ready()
    with pytest.raises(Exception, match="capacity of 5"), js.checked():
        jax.block_until_ready(call(active=index))


def test_hand_made_index_reads_and_writes_in_bounds(implementation):
    good = js.tile_index(MASK, (2, 2), ordered=True)
    want = np.asarray(call(active=good, implementation=implementation))
    wild = jnp.concatenate([good.ids, jnp.asarray([-7, 2**30, 10**9, -(2**31)], jnp.int32)])
    import dataclasses

    index = dataclasses.replace(
        good, ids=wild, count=jnp.int32(wild.shape[0]), capacity=wild.shape[0]
    )
    np.testing.assert_allclose(call(active=index, implementation=implementation), want, rtol=1e-5)


def test_donated_and_transposed_operands(implementation, rng):
    x = jnp.asarray(rng.standard_normal((4, 7, 6, 2), np.float32)).transpose(3, 2, 1, 0)
    base = jnp.full((2, 6, 7, 8), 3.0)
    mask = jnp.asarray(rng.random((2, 6, 7)) < 0.5)
    want = call(x=x, active=mask, base=base, implementation=implementation)
    f = jax.jit(
        lambda base: call(x=x, active=mask, base=base, implementation=implementation),
        donate_argnums=0,
    )
    if implementation == "reference" and jax.default_backend() == "gpu":
        assert_close(
            f(base + 0), want, "float32"
        )  # XLA may take another TF32 convolution under jit
    else:
        np.testing.assert_array_equal(f(base + 0), want)


def test_padding_and_groups_are_named():
    with pytest.raises(ValueError, match=r"padding=.* takes more from x"):
        call(padding=((-20, 0), (0, 0)))
    with pytest.raises(ValueError, match="which groups=3 does not divide"):
        call(groups=3)
    np.testing.assert_array_equal(call(padding=(1, (1, 1))), call(padding=1))
