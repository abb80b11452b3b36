"""The products that a masked weight's training runs on a GPU: sampled ones, and those of a
transposed operand; and which variants come first where the density is not known.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ops.masked_matmul.test_masked_matmul import entries, oracle, problem, run
from ops.op_suite import assert_close, cast, rounded

import jaxsparse as js
from jaxsparse.ops.masked_matmul.blocks import check_density
from jaxsparse.ops.masked_matmul.params import MatmulParams
from jaxsparse.ops.masked_matmul.run import problem_of
from jaxsparse.select.masked_matmul import candidates
from jaxsparse.select.variants import table

needs_table = pytest.mark.skipif(
    not table("masked_matmul", "cuda"), reason="this build has no CUDA module"
)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("block", [(32, 64), (64, 128), (32, 1), (5, 7), (1, 1), (200, 1)])
@pytest.mark.parametrize("density", [0.0, 0.05, 0.4, 1.0])
def test_sampled(rng, dtype, block, density):
    """Several tiles each way, ragged edges, an odd number of slabs."""
    diff, masks = problem(rng, block, "out_mask", size=(330, 264, 712), density=density)
    with js.config(variant="sampled"):
        got = run(cast(diff, dtype), masks, block, "cuda")
    assert_close(got, oracle(rounded(diff, dtype), masks, block), dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("block", [(32, 64), (32, 1)])
@pytest.mark.parametrize("shared", ["a", "b", "out_mask", "none"])
def test_sampled_products_that_share_an_operand(rng, block, shared):
    diff, masks = problem(rng, block, "out_mask", size=(200, 136, 264), density=0.3, batch=(3,))
    for arrays in (diff, masks):
        if shared in arrays:
            arrays[shared] = arrays[shared][:1]
    with js.config(variant="sampled"):
        got = run(cast(diff, "bfloat16"), masks, block, "cuda", preferred_element_type=jnp.float32)
    assert got.dtype == jnp.float32
    assert_close(got, oracle(rounded(diff, "bfloat16"), masks, block), "bfloat16")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("density", [0.0, 0.05, 0.5, 1.0])
def test_turned(rng, dtype, density):
    """An operand that lies transposed; NaN in what is masked."""
    block = (64, 64)
    diff, masks = problem(rng, block, "a_mask", size=(1104, 520, 712), density=density)
    want = oracle(rounded(diff, dtype), masks, block)
    diff["a"][~entries(masks["a_mask"], block, (1104, 520))] = np.nan
    with js.config(variant="turned"):
        got = run(cast(diff, dtype), masks, block, "cuda")
    assert_close(got, want, dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("block", [(32, 64), (32, 1), (1, 32)])
@pytest.mark.parametrize("named", ["cuda", None])
def test_gradients_of_a_wide_layer(rng, block, named):
    """Large enough for the variants that a wide layer takes, forward and backward."""
    diff, masks = problem(rng, block, "a_mask", size=(264, 2048, 1152), density=0.2)
    keep = entries(masks["a_mask"], block, (264, 2048))
    weight = jnp.asarray(rng.standard_normal((264, 1152), np.float32))
    diff["b"] = diff["b"] * np.float32(4.0)

    def dense(d):
        return jnp.sum(jnp.where(keep, d["a"], 0.0) @ d["b"] * weight)

    got = jax.jit(jax.grad(lambda d: jnp.sum(run(d, masks, block, named) * weight)))(
        cast(diff, "float32")
    )
    with jax.default_matmul_precision("highest"):
        want = jax.grad(dense)(cast(diff, "float32"))
    for name in diff:
        assert_close(got[name], want[name], "float32")
    assert not np.asarray(got["a"])[~keep].any()


@pytest.mark.parametrize("density", [None, 0, 0.5, 1.0])
def test_density_changes_no_result(implementation, rng, density):
    diff, masks = problem(rng, (32, 1), "a_mask", size=(64, 72, 40), density=0.5)
    got = run(cast(diff, "float32"), masks, (32, 1), implementation, density=density)
    assert_close(got, oracle(diff, masks, (32, 1)), "float32")


def test_density_is_rounded():
    """To a twentieth, so that 1 - sparsity is the density that it was meant to be; small shares are
    told apart further.
    """
    for sparsity in range(0, 101, 5):
        assert check_density(1 - sparsity / 100) == (20 - sparsity // 5) / 20
    given = (0.001, 0.11, 0.12, 0.13, 0.56, np.float32(0.2), 0, 1)
    assert [check_density(v) for v in given] == [0.001, 0.1, 0.1, 0.15, 0.55, 0.2, 0, 1]
    small = (1e-9, 0.0051, 0.013, 0.024, 0.026, 0.04, 0.06)
    assert [check_density(v) for v in small] == [0.001, 0.005, 0.015, 0.02, 0.03, 0.03, 0.05]


def order(a, b, masks, blocks, **options):
    """The portfolio of float32 a and b: (rows, depth, columns)."""
    density = check_density(options.pop("density", None))
    p = MatmulParams(blocks, "default", "float32", density=density, **options)
    return list(candidates(problem_of(p, "cuda", a, b, masks)).names)


@needs_table
def test_what_comes_first():
    """Dense before tiles that keep everything, but not where CUDA is named, nor for whole rows."""
    a, b = jnp.zeros((1, 4096, 4096)), jnp.zeros((1, 4096, 2048))
    one = (1, 1)

    def mask(block, size=(4096, 4096)):
        return jnp.zeros((1, -(-size[0] // block[0]), -(-size[1] // block[1])), bool)

    def first(block, **options):
        return order(a, b, (mask(block), None, None), (block, one, one), **options)[0]

    assert first((32, 64)) == "auto"
    assert first((32, 64), turned=True) == "turned"
    assert first((32, 1)) == "auto"
    assert first((1, 64)) == first((1, 1)) == first((4, 32), turned=True) == "dense"
    assert first((1, 64), implementation="cuda") == "auto"
    assert first((1, 4096)) == "auto"
    assert first((32, 1), density=0.5) == first((32, 64), density=0.9) == "dense"
    assert first((32, 1), density=0.1) == first((32, 64), density=0.5) == "auto"
    assert first((32, 64), density=0.56) == "auto"
    assert first((32, 64), density=0.6) == first((32, 64), density=1 - 0.4) == "dense"
    assert first((32, 1), density=0.5, implementation="cuda") == "auto"
    out = mask((32, 64), (4096, 2048))
    assert order(a, b, (None, None, out), (one, one, (32, 64)))[0] == "sampled"
    fine = (None, None, mask((32, 1), (4096, 2048)))
    assert order(a, b, fine, (one, one, (32, 1)), density=0.1)[0] == "sampled"
    assert order(a, b, fine, (one, one, (32, 1)), density=0.11)[0] == "sampled"
    assert order(a, b, fine, (one, one, (32, 1)), density=0.15)[0] == "dense"
    assert order(a, b, fine, (one, one, (32, 1)), density=0.2)[0] == "dense"
    left = (mask((1, 64)), None, out)
    assert "sampled" not in order(a, b, left, ((1, 64), one, (32, 64)))
