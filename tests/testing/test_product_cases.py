"""Products and mixtures of experts by name."""

import numpy as np
import pytest

from jaxsparse.testing.product_cases import (
    GROUPED_CASES,
    MATMUL_CASES,
    MOE_CASES,
    GroupedCase,
    find,
)

TABLES = {"grouped": GROUPED_CASES, "matmul": MATMUL_CASES, "moe": MOE_CASES}


def test_the_shapes_that_goals_are_stated_for():
    gpu = {(c.tokens, c.experts, c.depth, c.outputs) for c in find(GROUPED_CASES, ["gpu"])}
    assert {(4096, e, 768, 3072) for e in (8, 64, 128)} | {(8192, 8, 4096, 14336)} == gpu
    cpu = {(c.tokens, c.experts, c.depth, c.outputs) for c in find(GROUPED_CASES, ["cpu"])}
    assert {(1024, e, 256, 1024) for e in (8, 64)} < cpu
    masked = find(MATMUL_CASES, ["gpu"])
    assert {c.block for c in masked if c.masked == "a"} == {(32, 64), (32, 1), (1, 64), (1, 1)}
    assert {c.masked for c in masked} == {"a", "b", "out"}
    switch = find(MOE_CASES, ["experts"])
    assert {(c.tokens, c.experts) for c in switch} == {
        (128 * b, e) for b in (8, 32) for e in (8, 16, 32, 64, 128, 256)
    }
    assert {(c.d, c.hidden, c.activation) for c in switch} == {(768, 3072, "relu")}
    wide = {(c.tokens, c.d, c.hidden, c.experts, c.top_k) for c in find(MOE_CASES, ["wide"])}
    assert wide == {(8192, 2048, 768, 128, 8), (16384, 2560, 1280, 64, 4)}


@pytest.mark.parametrize("kind", TABLES)
def test_names_and_tags(kind):
    table = TABLES[kind]
    assert all(name == one.name for name, one in table.items())
    for tag in ("cpu", "gpu", "quick"):
        assert find(table, [tag])
    first = next(iter(table))
    assert find(table, [first, first]) == [table[first]]
    with pytest.raises(ValueError, match="case='nothing'"):
        find(table, ["nothing"])


@pytest.mark.parametrize("skew", ["uniform", "zipf", "one"])
def test_experts_of_tokens(skew):
    one = GroupedCase("x", 500, 6, 8, 8, 2, skew)
    ids = one.expert_ids()
    assert ids.shape == (500, 2)
    assert ids.dtype == np.int32
    counts = np.bincount(ids.ravel(), minlength=6)
    assert len(counts) == 6
    if skew == "one":
        assert counts[0] == 1000
        return
    assert (ids[:, 0] != ids[:, 1]).all()
    assert (counts[0] > 2 * counts[5]) == (skew == "zipf")
    assert (ids == one.expert_ids()).all()
    assert (ids != one.expert_ids(seed=1)).any()


@pytest.mark.parametrize("name", ["96_a_32x64", "1024_b_32x64", "1024_out_32x64", "1024_a_1x1"])
@pytest.mark.parametrize("sparsity", [0.0, 0.5, 0.99, 1.0])
def test_masks(name, sparsity):
    one = MATMUL_CASES[name]
    mask = one.mask(sparsity)
    assert mask.shape == one.mask_shape
    assert (~mask).sum() == round(sparsity * mask.size)
    assert 0 < sparsity < 0.99 or (mask == one.mask(sparsity)).all()
