"""What the layers refuse, and how flax is imported."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from layers import OUT, image, index

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


@pytest.mark.parametrize("name", ["dtype", "param_dtype"])
def test_what_is_not_a_dtype_is_named(face, name):
    with pytest.raises(TypeError, match=f"^{name}='foo' is not a dtype"):
        face.masked(**{name: "foo"})


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
    with pytest.raises(TypeError, match="mask has dtype float32"):
        layer(x, mask.astype(jnp.float32))
    for wrong in (mask[0], mask[:, :-1]):
        with pytest.raises(
            ValueError, match=r"mask has shape .* result of these inputs has \(2, 9, 11\)"
        ):
            layer(x, wrong)
    with pytest.raises(ValueError, match=r"mask is a TileIndex of a mask \(2, 8, 11\)"):
        layer(x, index(mask[:, :-1]))
    for base in (jnp.zeros((9, 11, OUT)), jnp.zeros((2, 9, 11, OUT + 1))):
        with pytest.raises(ValueError, match=r"base is float32.*result is float32\[2, 9, 11, 6\]"):
            layer(x, mask, base=base)
        for active in (mask, None):
            with pytest.raises(ValueError, match=r"residual is float32.*result is float32\[2, 9,"):
                layer(x, active, residual=base)
    with pytest.raises(ValueError, match="inputs has shape"):
        layer(x[0, 0], mask[0])


def test_what_is_no_array_is_named(face, rng):
    x = image(rng)
    layer = face.masked()
    mask = jnp.ones((2, 9, 11), bool)
    with pytest.raises(TypeError, match="base must be an array, not float"):
        layer(x, mask, base=0.0)
    for given in (None, mask):
        with pytest.raises(TypeError, match="inputs must be an array, not list"):
            layer(x.tolist(), given)
    for given, name in (("m", "str"), (mask.tolist(), "list")):
        with pytest.raises(TypeError, match=f"mask must be an array, not {name}"):
            layer(x, given)


def test_groups_by_their_name(face, rng):
    x, mask = image(rng), jnp.ones((2, 9, 11), bool)
    for groups in (0, 4, 1.5):
        with pytest.raises(ValueError, match="feature_group_count="):
            face.masked(feature_group_count=groups)
    with pytest.raises(ValueError, match=r"inputs has shape .* feature_group_count=3"):
        face.masked(feature_group_count=3)(x, mask)


def test_a_named_implementation_that_does_not_exist(face, rng):
    x = image(rng)
    with pytest.raises(ValueError, match="metal"):
        face.masked(implementation="metal")(x, jnp.ones((2, 9, 11), bool))


def printed(program):
    """What another Python prints for `program`."""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=True, timeout=120, capture_output=True, text=True)
    return done.stdout.splitlines()


def test_flax_is_imported_when_it_is_used():
    program = (
        "import sys, jaxsparse as js; from jaxsparse import nn; print('flax' in sys.modules); "
        "nn.nnx.MaskedConv; print('flax' in sys.modules)"
    )
    assert printed(program) == ["False", "True"]


def test_without_flax_the_error_says_what_to_install():
    program = (
        "import sys; sys.modules['flax'] = None; from jaxsparse import nn\n"
        "try: nn.linen\n"
        "except ImportError as error: print(error)\n"
        "else: print('no error')"
    )
    (told,) = printed(program)
    assert "pip install 'jaxsparse[nn]'" in told


def test_unknown_attribute():
    with pytest.raises(AttributeError, match="torch"):
        nn.torch  # noqa: B018
