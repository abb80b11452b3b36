"""FlexAttention's and FlashAttention's lists: taken, given, and refused where they do not hold."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from index.blocks.test_block_mask import blocky, check, states

import jaxsparse as js


def test_there_and_back():
    mask = blocky((2, 3, 70, 100), 0)
    made = js.BlockMask.from_dense(mask, (16, 32))
    lists = made.to_lists()
    want = states(mask, (16, 32))
    for counts, blocks, kind in ((lists[0], lists[1], 1), (lists[2], lists[3], 2)):
        for row in np.ndindex(want.shape[:3]):
            n = int(counts[row])
            np.testing.assert_array_equal(blocks[row][:n], np.nonzero(want[row] == kind)[0])
    more = {"block_size": (16, 32), "q_len": 70, "kv_len": 100}
    again = js.BlockMask.from_lists(*lists, **more, mask_mod=made.mask_mod)
    check(again, mask, (16, 32))
    check(jax.jit(lambda x: js.BlockMask.from_lists(*x, **more, mask_mod=made.mask_mod))(lists),
          mask, (16, 32))  # fmt: skip
    whole = js.BlockMask.from_lists(*lists, **more)
    np.testing.assert_array_equal(whole.full_block_bits(), want > 0)


def test_mask_mod():
    mask = blocky((1, 2, 70, 100), 0)
    made = js.BlockMask.from_dense(mask, (16, 48))
    b, h, q, kv = np.ogrid[:3, :2, :70, :100]
    np.testing.assert_array_equal(
        made.mask_mod(b, h, q, kv), np.broadcast_to(mask, (3, 2, 70, 100))
    )
    asked = js.create_block_mask(made.mask_mod, 1, 2, 70, 100, 32)
    np.testing.assert_array_equal(asked.to_dense(), mask)


def lists(counts, indices):
    return np.asarray(counts).reshape(1, 1, -1), np.asarray(indices).reshape(1, 1, len(counts), -1)


SIZE = {"block_size": 16, "q_len": 32, "kv_len": 48}
FAULTS = {
    "an entry outside": lists([1, 2], [[0, 9], [2, 3]]),
    "below 0": lists([1, -1], [[0, 9], [2, 1]]),
    "twice": lists([1, 2], [[0, 9], [2, 2]]),
    "above what": lists([3, 1], [[0, 1], [2, 1]]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults(fault):
    """An error where the lists are known; else the flag, and what is left of the lists."""
    counts, indices = FAULTS[fault]
    given = (np.zeros_like(counts), indices, counts, indices)
    with pytest.raises(ValueError, match=fault):
        js.BlockMask.from_lists(*given, **SIZE)
    run = jax.jit(lambda *x: js.BlockMask.from_lists(*x, **SIZE))
    made = run(*given)
    assert bool(made.overflow)
    want = np.zeros((2, 3), bool)
    for q in range(2):
        for c in indices[0, 0, q][: max(counts[0, 0, q], 0)]:
            if 0 <= c < 3:
                want[q, c] = True
    np.testing.assert_array_equal(made.block_bits()[0, 0], want)
    with pytest.raises(jax.errors.JaxRuntimeError, match="out of range"), js.checked():
        run(*given)


def test_a_block_in_both_lists():
    one = lists([1, 1], [[0, 0], [2, 0]])
    with pytest.raises(ValueError, match="the same block"):
        js.BlockMask.from_lists(*one, *one, **SIZE)
    never = {**SIZE, "mask_mod": lambda b, h, q, k: q < 0}
    made = jax.jit(lambda *x: js.BlockMask.from_lists(*x, *x, **never))(*one)
    assert bool(made.overflow)
    assert int(made.full_block_bits().sum()) == 2


def test_errors():
    counts, indices = lists([1, 1], [[0, 1], [2, 1]])
    make = js.BlockMask.from_lists
    with pytest.raises(ValueError, match=r"kv_num_blocks has shape \(1, 1, 2\); 64 queries"):
        make(counts, indices, block_size=16, q_len=64, kv_len=48)
    with pytest.raises(ValueError, match="kv_indices has shape"):
        make(counts, indices[:, 0], **SIZE)
    with pytest.raises(TypeError, match="kv_indices has dtype"):
        make(counts, indices.astype(float), **SIZE)
    with pytest.raises(ValueError, match="give both"):
        make(counts, indices, counts, **SIZE)
    with pytest.raises(ValueError, match="full_kv_num_blocks has shape"):
        make(counts, indices, counts.repeat(2, 1), indices.repeat(2, 1), **SIZE)
    with pytest.raises(TypeError, match="mask_mod"):
        make(counts, indices, **SIZE, mask_mod=3)
    assert make(jnp.asarray(counts), jnp.asarray(indices), **SIZE).shape == (1, 1, 32, 48)
