"""The products of an operand whose mask is fine: 16 rows are condensed along K by themselves."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from ops.masked_matmul.test_masked_matmul import entries, oracle, problem, run
from ops.op_suite import assert_close, cast, rounded

import jaxsparse as js
from jaxsparse.select.masked_matmul import FINE, MatmulProblem, candidates, reason_against
from jaxsparse.select.table import DENSE
from jaxsparse.select.variants import table

needs_table = pytest.mark.skipif(
    not table("masked_matmul", "cuda"), reason="this build has no CUDA module"
)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("block", [(1, 1), (2, 1), (8, 1), (3, 5), (1, 64), (16, 300)])
@pytest.mark.parametrize("density", [0.0, 0.01, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("which", ["a_mask", "b_mask"])
def test_values(rng, dtype, block, density, which):
    """Ragged edges, NaN in what is masked."""
    block = block if which == "a_mask" else block[::-1]
    size = (331, 1003, 264) if which == "a_mask" else (264, 1003, 331)
    diff, masks = problem(rng, block, which, size, density)
    want = oracle(rounded(diff, dtype), masks, block)
    name, shape = ("a", size[:2]) if which == "a_mask" else ("b", size[1:])
    diff[name][~entries(masks[which], block, shape)] = np.nan
    with js.config(variant=FINE):
        got = run(cast(diff, dtype), masks, block, "cuda")
    assert_close(got, want, dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("depth", [4, 12, 24, 29])
def test_infinity_is_not_multiplied_by_what_fills_a_list_up(rng, dtype, depth):
    """Sums that are not whole steps: an infinite entry that all results take stays infinite."""
    diff, masks = problem(rng, (1, 1), "b_mask", (40, depth, 64), density=1.0)
    diff["a"][:, 0] = np.inf
    diff["b"][0] = 1
    with js.config(variant=FINE):
        got = run(cast(diff, dtype), masks, (1, 1), "cuda")
    np.testing.assert_array_equal(np.asarray(got, np.float32), np.inf)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_more_tiles_than_multiprocessors(rng, dtype):
    """Several products, a float32 result, several tiles a CTA."""
    diff, masks = problem(rng, (1, 1), "a_mask", (1032, 700, 2056), density=0.02, batch=(3,))
    with js.config(variant=FINE):
        got = run(cast(diff, dtype), masks, (1, 1), "cuda", preferred_element_type=jnp.float32)
    assert_close(got, oracle(rounded(diff, dtype), masks, (1, 1)), dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("shared", ["a", "b", "a_mask", "none"])
def test_products_that_share_an_operand(rng, shared):
    diff, masks = problem(rng, (4, 1), "a_mask", (200, 136, 320), density=0.3, batch=(3,))
    for arrays in (diff, masks):
        if shared in arrays:
            arrays[shared] = arrays[shared][:1]
    with js.config(variant=FINE):
        got = run(cast(diff, "bfloat16"), masks, (4, 1), "cuda")
    assert_close(got, oracle(rounded(diff, "bfloat16"), masks, (4, 1)), "bfloat16")


PROBLEM = MatmulProblem(
    "cuda",
    (1, 4096, 4096),
    (1, 4096, 4096),
    ((1, 512, 4096), None, None),
    ((8, 1), (1, 1), (1, 1)),
    1,
    512 * 4096,
    "bfloat16",
    2,
    "default",
    density=0.1,
)


@needs_table
def test_what_is_fine(monkeypatch):
    """A mask on one operand alone; the default where little is said to be kept."""
    monkeypatch.setattr("jaxsparse.select.masked_matmul.is_hopper", lambda: True)

    def first(**changed):
        return candidates(dataclasses.replace(PROBLEM, **changed)).names[0]

    assert first() == FINE
    assert first(density=None) == first(density=0.5) == DENSE
    assert first(blocks=((1, 1),) * 3, density=0.1) == DENSE
    assert first(blocks=((1, 1),) * 3, density=0.005) == FINE
    assert first(blocks=((1, 1),) * 3, density=0.001) == first(density=0.01) == "auto"
    assert first(blocks=((32, 1),) * 3, masks=((1, 128, 4096), None, None)) == "auto"
    mask = PROBLEM.masks[0]
    for masks in ((mask, mask, None), (mask, None, mask), (None, None, mask)):
        assert "fine products need" in (
            reason_against(dataclasses.replace(PROBLEM, masks=masks), FINE) or ""
        )
    assert reason_against(dataclasses.replace(PROBLEM, b=(1, 4096, 100)), FINE)
    right = dataclasses.replace(PROBLEM, masks=(None, mask, None), blocks=((1, 1), (1, 8), (1, 1)))
    assert candidates(right).names[0] == FINE
