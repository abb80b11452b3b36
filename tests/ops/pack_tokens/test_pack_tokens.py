"""`pack_tokens` and `unpack_tokens` against numpy's boolean indexing, for any shape, and what runs
in between.
"""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxsparse as js

X = np.random.default_rng(0).standard_normal((3, 7, 4)).astype(np.float32)
MASK = np.random.default_rng(1).random((3, 7)) < 0.5


@settings(max_examples=10, deadline=None)
@given(
    shape=st.sampled_from([(3, 7), (1, 1), (0, 4), (2, 0), (4, 33)]),
    fill=st.sampled_from([0.0, 0.4, 1.0]),
    capacity=st.sampled_from([None, 0, 5, 50, 200]),
    trailing=st.sampled_from([(), (4,), (2, 3)]),
)
def test_there_and_back(shape, fill, capacity, trailing):
    rng = np.random.default_rng(0)
    mask = rng.random(shape) < fill
    x = rng.standard_normal((*shape, *trailing)).astype(np.float32)
    base = rng.standard_normal(x.shape).astype(np.float32)
    x[~mask] = np.nan
    packed, packing = js.pack_tokens(x, mask, capacity=capacity)
    room = mask.size if capacity is None else capacity
    n = min(room, mask.sum())
    assert packed.shape == (room, *trailing)
    np.testing.assert_array_equal(packed[:n], x[mask][:n])
    assert not np.asarray(packed[n:]).any()
    assert int(packing.count) == n
    assert bool(packing.overflow) == (mask.sum() > room)
    ends = np.minimum(np.concatenate([[0], mask.sum(1).cumsum()]), room)
    np.testing.assert_array_equal(packing.cu_seqlens, ends)
    np.testing.assert_array_equal(packing.positions()[:n], np.nonzero(mask)[1][:n])
    np.testing.assert_array_equal(packing.valid(), np.arange(room) < n)
    kept = np.zeros(mask.size, bool)
    kept[np.flatnonzero(mask)[:n]] = True
    kept = kept.reshape(*shape, *(1,) * len(trailing))
    np.testing.assert_array_equal(js.unpack_tokens(packed, packing), np.where(kept, x, 0))
    back = js.unpack_tokens(packed, packing, base=base)
    np.testing.assert_array_equal(back, np.where(kept, x, base))


def test_one_compilation_and_a_second_array():
    traces = []

    @jax.jit
    def run(x, mask):
        traces.append(1)
        packed, packing = js.pack_tokens(x, mask, capacity=12)
        again, same = js.pack_tokens(x * 2, packing)
        return packed, again, same.count

    for seed in range(3):
        mask = np.random.default_rng(seed).random((3, 7)) < 0.4
        packed, again, count = run(X, mask)
        assert int(count) == min(mask.sum(), 12)
        np.testing.assert_array_equal(packed[: int(count)], X[mask][:12])
        np.testing.assert_array_equal(again, packed * 2)
    assert len(traces) == 1


def test_a_stack_of_packings_is_refused():
    packed, packing = jax.vmap(js.pack_tokens)(np.stack([X, X]), np.stack([MASK, MASK]))
    with pytest.raises(ValueError, match="stack"):
        js.unpack_tokens(packed[0], packing)


def test_a_dense_layer_over_the_packed_rows(implementation):
    w = np.random.default_rng(3).standard_normal((4, 6)).astype(np.float32)

    @jax.jit
    def run(x, mask):
        packed, packing = js.pack_tokens(x, mask)
        y = js.grouped_matmul(packed, w[None], packing.group_sizes, precision="highest",
                              implementation=implementation)  # fmt: skip
        return js.unpack_tokens(y, packing)

    np.testing.assert_allclose(run(X, MASK), np.where(MASK[..., None], X @ w, 0), atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_within_sequences(causal):
    _, packing = js.pack_tokens(X, MASK, capacity=18)
    owner, place = np.nonzero(MASK)
    want = np.zeros((18, 18), bool)
    want[: len(owner), : len(owner)] = owner[:, None] == owner
    if causal:
        want[: len(owner), : len(owner)] &= place[:, None] >= place
    mask = jax.jit(lambda p: p.block_mask(16, causal=causal))(packing)
    np.testing.assert_array_equal(mask.to_dense()[0, 0], want)
    assert not bool(mask.overflow)


BAD = {
    "packed": (lambda p: js.unpack_tokens(X[0], p), ValueError, "packed has shape"),
    "no packing": (lambda p: js.unpack_tokens(X[0], MASK), TypeError, "js.pack_tokens"),
    "base": (lambda p: js.unpack_tokens(X.reshape(21, 4), p, base=X[0]), ValueError, "base is"),
}


@pytest.mark.parametrize("name", BAD)
def test_errors(name):
    call, error, words = BAD[name]
    with pytest.raises(error, match=words):
        call(js.pack_tokens(X, MASK)[1])
