"""What the layers refuse, and how flax is imported."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from layers import OUT, image

from jaxsparse import nn

REFUSED = {
    "kernel_size_int": ({"kernel_size": 3}, "kernel_size"),
    "kernel_size_1d": ({"kernel_size": (3,)}, "kernel_size"),
    "kernel_size_3d": ({"kernel_size": (3, 3, 3)}, "kernel_size"),
    "circular": ({"padding": "CIRCULAR"}, "padding"),
    "reflect": ({"padding": "REFLECT"}, "padding"),
    "causal": ({"padding": "CAUSAL"}, "padding"),
    "input_dilation": ({"input_dilation": 2}, "input_dilation"),
    "input_dilation_pair": ({"input_dilation": (1, 2)}, "input_dilation"),
    "activation": ({"activation": "tanh"}, "activation"),
    "convolution": ({"conv_general_dilated": print}, "conv_general_dilated"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_options_are_refused_when_the_layer_is_made(face, name):
    options, word = REFUSED[name]
    with pytest.raises(ValueError, match=word):
        face.masked(**options)


@pytest.mark.parametrize("dilation", [None, 1, (1, 1), [1, 1]])
def test_input_dilation_of_one_is_taken(face, dilation, rng):
    x = image(rng)
    assert face.masked(input_dilation=dilation)(x).shape == (2, 9, 11, OUT)


def test_weight_mask_of_the_wrong_shape(rng):
    layer = nn.linen.MaskedConv(OUT, (3, 3), mask=jnp.ones((3, 3)))
    x = image(rng)
    mask = jnp.ones(x.shape[:-1], bool)
    with pytest.raises(ValueError, match="mask has shape"):
        layer.init(jax.random.key(0), x, mask)


def test_calls_name_the_argument(face, rng):
    x = image(rng)
    layer = face.masked()
    mask = jnp.ones((2, 9, 11), bool)
    with pytest.raises(TypeError, match="spatial_mask has dtype float32"):
        layer(x, mask.astype(jnp.float32))
    with pytest.raises(ValueError, match="spatial_mask has shape"):
        layer(x, mask[0])
    with pytest.raises(ValueError, match="active has shape"):
        layer(x, mask[:, :-1])
    with pytest.raises(ValueError, match="base has shape"):
        layer(x, mask, base=jnp.zeros((9, 11, OUT)))
    with pytest.raises(ValueError, match="base is float32"):
        layer(x, mask, base=jnp.zeros((2, 9, 11, OUT + 1)))
    with pytest.raises(ValueError, match="inputs has shape"):
        layer(x[0, 0], mask[0])


def test_a_named_implementation_that_does_not_exist(face, rng):
    x = image(rng)
    with pytest.raises(ValueError, match="metal"):
        face.masked(implementation="metal")(x, jnp.ones((2, 9, 11), bool))


def test_flax_is_imported_when_it_is_used():
    program = (
        "import sys, jaxsparse as js; from jaxsparse import nn; assert 'flax' not in sys.modules; "
        "nn.nnx.MaskedConv; assert 'flax' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_without_flax_the_error_says_what_to_install():
    program = (
        "import sys; sys.modules['flax'] = None; from jaxsparse import nn\n"
        "try: nn.linen\n"
        "except ImportError as error: assert 'jaxsparse[nn]' in str(error), error\n"
        "else: raise SystemExit('no error')"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_unknown_attribute():
    with pytest.raises(AttributeError, match="torch"):
        nn.torch  # noqa: B018
