"""What MoE and MaskedDense refuse, naming the argument."""

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from jaxsparse import nn

X = jnp.ones((3, 8))
NUMBERS = [(0, ValueError), (-8, ValueError), (True, TypeError), (8.0, TypeError), ("8", TypeError)]


@pytest.mark.parametrize(("value", "error"), NUMBERS)
def test_widths(value, error):
    rngs = nnx.Rngs(0)
    with pytest.raises(error, match=f"^in_features={value!r}"):
        nn.nnx.MoE(value, 4, 16, rngs=rngs)
    with pytest.raises(error, match=f"^in_features={value!r}"):
        nn.nnx.MaskedDense(value, 4, rngs=rngs)
    with pytest.raises(error, match=f"^out_features={value!r}"):
        nn.nnx.MaskedDense(8, value, rngs=rngs)
    with pytest.raises(error, match=f"^features={value!r}"):
        nn.linen.MaskedDense(value)


@pytest.mark.parametrize("layer", [nn.linen.MoE(4, 16), nn.linen.MaskedDense(4)])
def test_inputs_without_width(layer):
    with pytest.raises(ValueError, match=r"^inputs has shape \(3, 0\); its last axis"):
        layer.init(jax.random.key(0), X[:, :0], jnp.ones(3, bool))


OPTIONS = {
    "implementation type": ({"implementation": 3}, TypeError, "^implementation=3"),
    "implementation": ({"implementation": "z"}, ValueError, "^implementation='z'"),
    "precision": ({"precision": "z"}, ValueError, "^precision='z'"),
    "hidden": ({"hidden": 16.0}, TypeError, "^hidden=16.0"),
    "dtype": ({"dtype": jnp.int32}, TypeError, "^dtype=int32"),
    "param_dtype": ({"param_dtype": bool}, TypeError, "^param_dtype=bool"),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_of_moe(name):
    changed, error, words = OPTIONS[name]
    given = {"num_experts": 4, "hidden": 16, **changed}
    with pytest.raises(error, match=words):
        nn.nnx.MoE(8, **given, rngs=nnx.Rngs(0))
    with pytest.raises(error, match=words):
        nn.linen.MoE(**given).init(jax.random.key(0), X)


@pytest.mark.parametrize("rngs", [None, 0, nnx.Rngs()])
def test_rngs(rngs):
    with pytest.raises(TypeError, match=r"^rngs must be an nnx[.]Rngs"):
        nn.nnx.MoE(8, 4, 16, rngs=rngs)
    with pytest.raises(TypeError, match=r"^rngs must be an nnx[.]Rngs"):
        nn.nnx.MaskedDense(8, 4, rngs=rngs)


def test_implementation_of_masked_dense():
    with pytest.raises(ValueError, match=r"^implementation='z'"):
        nn.linen.MaskedDense(4, implementation="z")
    with pytest.raises(ValueError, match=r"^implementation='z'"):
        nn.nnx.MaskedDense(8, 4, implementation="z", rngs=nnx.Rngs(0))


@pytest.mark.parametrize("dtype", [jnp.int32, bool, jnp.complex64])
def test_dtype_of_inputs(dtype):
    with pytest.raises(TypeError, match=r"^inputs has dtype"):
        nn.linen.MoE(4, 16).init(jax.random.key(0), X.astype(dtype))


def test_dtypes_that_promote_to_one_that_is_not_taken():
    told = "^inputs, dtype and param_dtype promote to float64"
    with jax.enable_x64(True), pytest.raises(TypeError, match=told):
        nn.linen.MoE(4, 16, dtype=jnp.float64).init(jax.random.key(0), X)
