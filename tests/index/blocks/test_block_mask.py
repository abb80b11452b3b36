"""`BlockMask` against the dense mask in numpy: states, lists in both directions, `&` and `|`."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxsparse as js

SHAPES = [
    (1, 1, 100, 130),
    (2, 3, 64, 64),
    (1, 2, 33, 300),
    (1, 1, 0, 20),
    (2, 1, 5, 0),
    (1, 1, 1, 1),
]
SIZES = [128, (16, 48), (64, 32)]


def blocky(shape, seed, empty=0.4, full=0.3):
    """A mask with empty, full and partial blocks of 16."""
    rng = np.random.default_rng(seed)
    *lead, t, s = shape

    def blocks(share):
        coarse = rng.random((*lead, -(-t // 16), -(-s // 16))) < share
        return np.repeat(np.repeat(coarse, 16, -2), 16, -1)[..., :t, :s]

    return (rng.random(shape) < 0.5) & ~blocks(empty) | blocks(full)


def states(mask, size):
    """[b, h, Q, C]: 0, 1 or 2 for an empty, partial or full block."""
    bq, bkv = (size, size) if isinstance(size, int) else size
    b, h, t, s = mask.shape
    found = np.zeros((b, h, -(-t // bq), -(-s // bkv)), int)
    for at in np.ndindex(found.shape):
        i, j = at[2] * bq, at[3] * bkv
        block = mask[at[0], at[1], i : i + bq, j : j + bkv]
        found[at] = block.any().astype(int) + block.all()
    return found


def check(made, mask, size, own=True):
    """Compare all that a BlockMask holds; not `own`: it shares the bits of another mask."""
    want = states(mask, size)
    np.testing.assert_array_equal(made.block_bits(), want > 0)
    np.testing.assert_array_equal(made.full_block_bits(), want == 2)
    np.testing.assert_array_equal(made.to_dense(), mask)
    share = (want == 0).mean() if want.size else 0.0
    np.testing.assert_allclose(made.sparsity(), share, atol=1e-6)
    assert made.shape == mask.shape
    assert not bool(made.overflow)
    words = np.asarray(made.words)
    assert words.shape[0] >= max((want == 1).sum(), 1) or not own
    used = check_lists(made.kv_counts, made.kv_blocks, made.kv_slots, want)
    assert check_lists(made.q_counts, made.q_blocks, made.q_slots, want.swapaxes(2, 3)) == used
    assert sorted(used) == list(range((want == 1).sum())) or not own


def check_lists(counts, blocks, slots, want):
    """The slots in use."""
    counts, blocks, slots = map(np.asarray, (counts, blocks, slots))
    assert counts.dtype == blocks.dtype == slots.dtype == np.int32
    assert blocks.shape == slots.shape == want.shape
    used = set()
    for row in np.ndindex(counts.shape):
        n = counts[row]
        np.testing.assert_array_equal(blocks[row][:n], np.nonzero(want[row])[0])
        np.testing.assert_array_equal(slots[row][:n] == -1, want[row][blocks[row][:n]] == 2)
        used |= set(slots[row][:n].tolist()) - {-1}
    return used


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_dense_there_and_back(shape, size):
    mask = blocky(shape, 0)
    made = js.BlockMask.from_dense(mask, size)
    check(made, mask, size)
    assert made.slots == max((states(mask, size) == 1).sum(), 1)
    inside = jax.jit(lambda m: js.BlockMask.from_dense(m, size))(mask)
    check(inside, mask, size)


@settings(max_examples=6)
@given(
    shape=st.tuples(*(st.integers(lo, hi) for lo, hi in ((1, 2), (1, 2), (0, 70), (0, 90)))),
    size=st.tuples(st.sampled_from([16, 32]), st.sampled_from([16, 48])),
    empty=st.sampled_from([0.0, 0.5, 1.0]),
    full=st.sampled_from([0.0, 0.3, 1.0]),
    seed=st.integers(0, 3),
)
def test_any_mask(shape, size, empty, full, seed):
    mask = blocky(shape, seed, empty, full)
    made = js.BlockMask.from_dense(mask, size)
    check(made, mask, size)
    dense = jnp.asarray(mask)
    if mask.size:
        asked = js.create_block_mask(lambda b, h, q, k: dense[b, h, q, k], *shape, size)
        check(asked, mask, size)
        np.testing.assert_array_equal(asked.words, made.words)


@pytest.mark.parametrize("shapes", [((2, 3), (2, 3)), ((1, 3), (2, 1)), ((1, 1), (1, 2))], ids=str)
@pytest.mark.parametrize("size", [16, (32, 48)], ids=str)
def test_and_or(shapes, size):
    one, other = (blocky((*lead, 70, 100), i) for i, lead in enumerate(shapes))
    a, b = (js.BlockMask.from_dense(m, size) for m in (one, other))
    check(a & b, one & other, size)
    check(a | b, one | other, size)
    both, either = jax.jit(lambda a, b: (a & b, a | b))(a, b)
    check(both, one & other, size)
    check(either, one | other, size)


def test_and_or_sort_out_blocks():
    """Two partial blocks that together are empty, or full, are so."""
    left = np.zeros((1, 1, 20, 20), bool)
    left[..., ::2] = True
    a, b = (js.BlockMask.from_dense(m, 16) for m in (left, ~left))
    assert int((a & b).kv_counts.sum()) == 0
    assert (a | b).full_block_bits().all()
    assert (a | b).slots == 1


def test_block_bits():
    bits = np.random.default_rng(0).random((2, 1, 3, 5)) < 0.5
    made = js.BlockMask.from_block_bits(bits, (32, 16), 90, 70)
    np.testing.assert_array_equal(made.block_bits(), bits)
    np.testing.assert_array_equal(made.full_block_bits(), bits)
    dense = np.repeat(np.repeat(bits, 32, 2), 16, 3)[:, :, :90, :70]
    np.testing.assert_array_equal(made.to_dense(), dense)
    check(made, dense, (32, 16))


@pytest.mark.parametrize("size", [16, (32, 48)], ids=str)
def test_one_query(size):
    mask = blocky((2, 3, 70, 100), 0)
    made = js.BlockMask.from_dense(mask, size)
    for at in (0, 33, 69):
        one = made.at_query(at)
        check(one, mask[:, :, at : at + 1], (16, one.block_size[1]))
    each = jax.jit(lambda m, at: m.at_query(at))(made, jnp.asarray([5, 70]))
    np.testing.assert_array_equal(each.to_dense()[0], mask[0, :, 5:6])
    assert not each.block_bits()[1].any()
    shared = js.BlockMask.from_dense(mask[:1], size).at_query(np.array([3, 40, -1]))
    np.testing.assert_array_equal(shared.to_dense()[:2, :, 0], mask[0, :, [3, 40]])
    with pytest.raises(ValueError, match="q_idx has 3 entries"):
        made.at_query(np.array([3, 40, -1]))


@pytest.mark.parametrize("size", [16, (32, 48)], ids=str)
def test_some_blocks(size):
    """Of queries, of keys, of both; in any order, more than once; under jit and vmap."""
    mask = blocky((2, 3, 96, 144), 0)
    made = js.BlockMask.from_dense(mask, size)
    (bq, bkv), (rows, columns) = made.block_size, made.grid
    q_blocks, kv_blocks = np.array([rows - 1, 0, 0]), np.arange(columns)[::-1]
    by_row, by_column = mask.reshape(2, 3, rows, bq, 144), mask.reshape(2, 3, 96, columns, bkv)
    some_rows = by_row[:, :, q_blocks].reshape(2, 3, 3 * bq, 144)
    turned = by_column[..., kv_blocks, :].reshape(mask.shape)
    check(made.take(q_blocks=q_blocks), some_rows, size, own=False)
    check(jax.jit(lambda m, at: m.take(kv_blocks=at))(made, kv_blocks), turned, size, own=False)
    both = some_rows.reshape(2, 3, 3 * bq, columns, bkv)[..., kv_blocks, :]
    both = both.reshape(some_rows.shape)
    check(made.take(q_blocks=q_blocks, kv_blocks=kv_blocks), both, size, own=False)
    at = jnp.asarray([[rows - 1, 0], [0, rows]])
    each = jax.vmap(lambda at: made.take(q_blocks=at).to_dense())(at)
    np.testing.assert_array_equal(each[0], some_rows[:, :, : 2 * bq])
    assert not each[1, :, :, bq:].any()
    check(made.take(), mask, size)
    assert made.take(q_blocks=np.zeros(0, int)).shape == (2, 3, 0, 144)


def test_blocks_that_cannot_be_taken():
    made = js.BlockMask.from_dense(np.ones((1, 1, 40, 64), bool), 16)
    with pytest.raises(ValueError, match=r"take: the mask's q_len=40 is not a multiple .* to 48"):
        made.take(q_blocks=np.array([0]))
    assert made.take(kv_blocks=np.array([0])).shape == (1, 1, 40, 16)
    with pytest.raises(TypeError, match="kv_blocks has dtype float64; it takes integers"):
        made.take(kv_blocks=np.ones(2))
    with pytest.raises(TypeError, match="kv_blocks must be an array, not list"):
        made.take(kv_blocks=[0])
    with pytest.raises(ValueError, match=r"kv_blocks has shape \(1, 1\); it takes \[n\]"):
        made.take(kv_blocks=np.array([[0]]))


def test_overflow_leaves_out_partial_blocks():
    mask = np.zeros((1, 1, 64, 64), bool)
    mask[..., 0] = mask[..., :16, :16] = True  # one full block, three partial ones
    made = js.BlockMask.from_dense(mask, 16, partial_capacity=2)
    assert bool(made.overflow)
    assert made.slots == 2
    np.testing.assert_array_equal(made.to_dense()[0, 0, :, 0], np.arange(64) < 48)
    assert "overflow" in repr(made)
    with js.checked(), pytest.raises(ValueError, match="partial_capacity"):
        js.BlockMask.from_dense(mask, 16, partial_capacity=2)
    enough = jax.jit(lambda m: js.BlockMask.from_dense(m, 16, partial_capacity=3))(mask)
    check(enough, mask, 16)
    with_it = made | enough
    assert bool(with_it.overflow)


def test_a_pytree_through_transforms():
    masks = np.stack([blocky((1, 2, 40, 50), seed) for seed in range(3)])
    stack = jax.vmap(lambda m: js.BlockMask.from_dense(m, 16))(masks)
    np.testing.assert_array_equal(jax.vmap(lambda m: m.to_dense())(stack), masks)
    for i, mask in enumerate(masks):
        check(jax.tree.map(lambda x, i=i: x[i], stack), mask, 16)

    last, shares = jax.lax.scan(lambda seen, mask: (seen + 1, mask.sparsity()), jnp.int32(0), stack)
    assert int(last) == 3
    np.testing.assert_allclose(shares[0], js.BlockMask.from_dense(masks[0], 16).sparsity())
    with pytest.raises(ValueError, match="stack"):
        stack.to_dense()
    again = dataclasses.replace(stack)
    assert jax.tree.structure(again) == jax.tree.structure(stack)


def test_repr():
    made = js.BlockMask.from_dense(np.ones((1, 2, 40, 50), bool), (16, 32))
    assert repr(made) == (
        "BlockMask(shape=(1, 2, 40, 50), block_size=(16, 32), slots=1, blocks=12 of 12)"
    )
    assert "blocks" not in repr(jax.eval_shape(lambda: made))
