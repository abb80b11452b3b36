"""Deep sums: a kernel that cuts them into blocks adds up what one pass would."""

import jax
import numpy as np
import pytest
from ops.masked_matmul.test_masked_matmul import oracle, problem, run
from ops.op_suite import assert_close, cast, rounded

import jaxsparse as js

#: One more than a block of 2048, blocks of the mask over the ends of blocks, and a last block of 1.
DEPTHS = [2049, 2561, 4100]


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("which", ["a_mask", "b_mask", "out_mask", "a_mask b_mask out_mask"])
def test_depths(implementation, rng, depth, which):
    block = (5, 48)
    diff, masks = problem(rng, block, which, (37, depth, 70))
    got = run(cast(diff, "float32"), masks, block, implementation)
    assert_close(got, oracle(diff, masks, block), "float32")


@pytest.mark.parametrize("rows_of_block", [1, 7, 1000])
def test_more_rows_than_a_chunk(implementation, rng, rows_of_block):
    block = (rows_of_block, 100)
    diff, masks = problem(rng, block, "a_mask out_mask", (1700, 2100, 300))
    got = run(cast(diff, "bfloat16"), masks, block, implementation)
    assert_close(got, oracle(rounded(diff, "bfloat16"), masks, block), "bfloat16")


@pytest.mark.parametrize("variant", ["wide", "quad", "pair", "single"])
def test_a_row_has_the_same_bits_alone(rng, variant):
    """In a product of one row as in one of many, whichever rows share its strip."""
    if jax.default_backend() == "gpu":
        pytest.skip("variants of the CPU: not on this device")
    diff, masks = problem(rng, (1, 16), "a_mask", (9, 2600, 40))
    with js.config(variant=variant):
        whole = np.asarray(run(diff, masks, (1, 16), "cpu"))
        for row in (0, 4, 8):
            alone = {"a": diff["a"][row : row + 1], "b": diff["b"]}
            mask = {"a_mask": masks["a_mask"][row : row + 1]}
            np.testing.assert_array_equal(
                np.asarray(run(alone, mask, (1, 16), "cpu"))[0], whole[row]
            )


def test_masked_entries_may_hold_nan(implementation, rng):
    block = (4, 200)
    diff, masks = problem(rng, block, "a_mask b_mask", (16, 2200, 400))
    want = oracle(diff, masks, block)
    for name in ("a", "b"):
        mask = masks[f"{name}_mask"]
        entries = np.kron(mask, np.ones(block, bool))[: diff[name].shape[0], : diff[name].shape[1]]
        diff[name] = np.where(entries, diff[name], np.float32("nan"))
    assert_close(run(cast(diff, "float32"), masks, block, implementation), want, "float32")
