"""The products of an operand whose columns are kept one by one, for 32 rows together: tiles sort
them by the rows that keep them.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from ops.masked_matmul.test_masked_matmul import entries, oracle, problem, run
from ops.op_suite import assert_close, cast, rounded

import jaxsparse as js
from jaxsparse.select.masked_matmul import sorts
from jaxsparse.select.variants import table

needs_table = pytest.mark.skipif(
    not table("masked_matmul", "cuda"), reason="this build has no CUDA module"
)


@pytest.mark.gpu
@pytest.mark.parametrize("variant", ["auto", "sorted"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("block", [(32, 1), (64, 3), (96, 40)])
@pytest.mark.parametrize("density", [0.0, 0.05, 0.3, 1.0])
@pytest.mark.parametrize("which", ["a_mask", "b_mask"])
def test_values(rng, variant, dtype, block, density, which):
    """Columns of an operand picked for 32 rows, ragged edges, NaN in what is masked."""
    block = block if which == "a_mask" else block[::-1]
    size = (1104, 1032, 704) if which == "a_mask" else (704, 1032, 1104)
    diff, masks = problem(rng, block, which, size, density)
    want = oracle(rounded(diff, dtype), masks, block)
    name, shape = ("a", size[:2]) if which == "a_mask" else ("b", size[1:])
    diff[name][~entries(masks[which], block, shape)] = np.nan
    with js.config(variant=variant):
        got = run(cast(diff, dtype), masks, block, "cuda")
    assert_close(got, want, dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_windows(rng, dtype):
    """More columns than are sorted at once, several products, a float32 result."""
    diff, masks = problem(rng, (32, 1), "a_mask", (264, 9000, 576), density=0.05, batch=(3,))
    with js.config(variant="sorted"):
        got = run(cast(diff, dtype), masks, (32, 1), "cuda", preferred_element_type=jnp.float32)
    assert_close(got, oracle(rounded(diff, dtype), masks, (32, 1)), dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("shared", ["a", "b", "a_mask", "none"])
def test_products_that_share_an_operand(rng, shared):
    diff, masks = problem(rng, (32, 1), "a_mask", (200, 136, 320), density=0.3, batch=(3,))
    for arrays in (diff, masks):
        if shared in arrays:
            arrays[shared] = arrays[shared][:1]
    with js.config(variant="sorted"):
        got = run(cast(diff, "bfloat16"), masks, (32, 1), "cuda")
    assert_close(got, oracle(rounded(diff, "bfloat16"), masks, (32, 1)), "bfloat16")


def test_what_is_sorted():
    """A mask on one operand alone, whole pieces of rows, no boxes, whole lines of the other one."""
    mask, b = object(), (1, 256, 128)

    def takes(block, right=b, masks=(mask, None, None), dtype="bfloat16"):
        return sorts(np.dtype(dtype).itemsize, block, right, masks)

    for block in ((32, 1), (96, 40), (64, 32)):
        assert takes(block)
    assert takes((32, 1), (1, 256, 96), dtype="float32")
    for block in ((32, 64), (16, 1), (1, 64)):
        assert not takes(block)
    assert not takes((64, 32), dtype="float32")
    for right in ((1, 256, 96), (2**20, 2**11, 128)):
        assert not takes((32, 1), right)
    for masks in ((mask, mask, None), (mask, None, mask), (None, None, mask)):
        assert not takes((32, 1), masks=masks)


@pytest.mark.gpu
def test_rows_of_the_other_operand_that_are_no_whole_lines(rng):
    """Strips take what cannot be sorted; a mask on both operands likewise."""
    diff, masks = problem(rng, (32, 1), "a_mask", (200, 136, 328), density=0.3)
    got = run(cast(diff, "bfloat16"), masks, (32, 1), "cuda")
    assert_close(got, oracle(rounded(diff, "bfloat16"), masks, (32, 1)), "bfloat16")
    with js.config(variant="sorted"), pytest.raises(ValueError, match="does not take this problem"):
        run(cast(diff, "bfloat16"), masks, (32, 1), "cuda")


@needs_table
def test_variant_in_the_table():
    assert table("masked_matmul", "cuda")["sorted"].number == 8
