"""What every op checks alike: precision, shapes that are known, sizes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax

import jaxsparse as js
from jaxsparse.core.checks import canonical_precision, check_offsets

PRECISIONS = {
    "F32_F32_F32": "highest",
    "BF16_BF16_F32_X3": "highest",
    "TF32_TF32_F32_X3": "highest",
    "TF32_TF32_F32": "default",
    "BF16_BF16_F32": "default",
    "F16_F16_F16": "default",
}


@pytest.mark.parametrize("name", PRECISIONS)
def test_dot_algorithms(name):
    """As an argument, by name, and as jax's own setting."""
    assert canonical_precision(lax.DotAlgorithmPreset[name]) == PRECISIONS[name]
    assert canonical_precision(name) == PRECISIONS[name]
    with jax.default_matmul_precision(name):
        assert canonical_precision(None) == PRECISIONS[name]
        assert canonical_precision("highest") == "highest"


def test_pairs_and_precisions_of_lax():
    assert canonical_precision(("default", "highest")) == "highest"
    assert canonical_precision([lax.Precision.DEFAULT] * 2) == "default"
    assert {canonical_precision(p.name) for p in lax.DotAlgorithmPreset} == {"default", "highest"}
    for wrong in ((), ("highest",), 3, "enormous"):
        with pytest.raises(ValueError, match=r"^precision="):
            canonical_precision(wrong)


def test_the_layers_and_ops_run_under_a_dot_algorithm():
    x = jnp.ones((4, 8))
    with jax.default_matmul_precision("BF16_BF16_F32"):
        for y in (
            js.masked_matmul(x, x.T),
            js.masked_dense(x, jnp.ones((8, 2)), jnp.ones(4, bool)),
            js.nn.linen.MoE(2, 4).init_with_output(jax.random.key(0), x)[0][0],
        ):
            assert np.isfinite(y).all()


OPS = {
    "a": lambda x: js.masked_matmul(x, jnp.ones((4, 2))),
    "expert_ids": lambda x: js.route(x.astype(int), 3),
    "x": lambda x: js.masked_norm(x, x[:, 0] > 0),
    "mask": lambda x: js.token_index(x[:, 0] > 0),
}


@pytest.mark.parametrize("name", OPS)
def test_symbolic_shapes_are_refused(name):
    (rows,) = export.symbolic_shape("rows")
    with pytest.raises(ValueError, match=rf"^{name} has shape \[rows.*\]: shapes are static"):
        export.export(jax.jit(OPS[name]))(jax.ShapeDtypeStruct((rows, 4), jnp.float32))


def test_sizes_past_int32():
    check_offsets("x", (2**30, 1, 5))
    for shape in ((2**16, 2**15, 5), (2**31, 0), (1, 2**31)):
        with pytest.raises(ValueError, match=r"^x has shape .* 2\^31 entries"):
            check_offsets("x", shape)
