"""`js.block_masks` against the masks' definitions in numpy, eager and inside jit."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsparse as js

SIZES = [(16, 48), (64, 32)]


def assert_mask(make, want, *data):
    """The same mask eagerly, with no slot to spare, and inside jit, where none is missing."""
    made, traced = make(*data), jax.jit(make)(*map(jnp.asarray, data))
    for each in (made, traced):
        np.testing.assert_array_equal(each.to_dense(), np.broadcast_to(want, each.shape))
        assert not bool(each.overflow)
    partial = (made.block_bits() & ~made.full_block_bits()).sum()
    assert made.slots == max(int(partial), 1)
    again = js.BlockMask.from_dense(made.to_dense(), made.block_size)
    np.testing.assert_array_equal(made.codes(), again.codes())


def ogrid(q, kv):
    return np.ogrid[:q, :kv]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("offset", [37, [0, 3, 60, -80]], ids=str)
def test_causal(size, offset):
    q, kv = ogrid(70, 100)
    want = q + np.reshape(offset, (-1, 1, 1, 1)) >= kv
    assert_mask(lambda o: js.block_masks.causal(70, 100, size, offset=o), want, np.asarray(offset))
    if isinstance(offset, int):
        np.testing.assert_array_equal(
            js.block_masks.causal(70, 100, size, offset=offset).to_dense(), want
        )


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_sliding_window(size):
    q, kv = ogrid(90, 90)
    left, right = np.array([20, 0, 5, -3, 70]), np.array([0, 0, 90, 10, 70])
    a, b = left[:, None, None, None], right[:, None, None, None]
    assert_mask(
        lambda a, b: js.block_masks.sliding_window(90, None, size, left=a, right=b),
        (q - kv <= a) & (kv - q <= b),
        left,
        right,
    )


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_documents(size, causal):
    """A batch of random cuts: empty documents, and tokens outside of all."""
    rng = np.random.default_rng(0)
    edges = np.sort(rng.integers(0, 81, (40, 5)))
    edges[:20, 0], edges[10:30, -1] = 0, 80
    want = np.zeros((40, 1, 80, 80), bool)
    for b, cuts in enumerate(edges):
        for start, stop in itertools.pairwise(cuts):
            want[b, 0, start:stop, start:stop] = True
    want &= np.tri(80, dtype=bool) if causal else True
    assert_mask(lambda e: js.block_masks.document(e, 80, size, causal=causal), want, edges)
    one = js.block_masks.document(edges[3], 80, size, causal=causal)
    np.testing.assert_array_equal(one.to_dense()[0], want[3])


def test_documents_out_of_order_are_within_bounds():
    made = js.block_masks.document(np.array([50, 3, 900, -7, 20]), 64, 16)
    assert made.to_dense().shape == (1, 1, 64, 64)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_prefix(size):
    q, kv = ogrid(75, 75)
    lens = np.array([0, 33, 80])
    assert_mask(
        lambda n: js.block_masks.prefix(n, 75, size),
        (kv <= q) | (kv < lens[:, None, None, None]),
        lens,
    )


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_lengths(size):
    q, kv = ogrid(60, 90)
    kv_lens, q_lens = np.array([0, 90, 17]), np.array([60, 31, 200])
    alone = np.broadcast_to(kv < kv_lens[:, None, None, None], (3, 1, 60, 90))
    assert_mask(lambda n: js.block_masks.lengths(n, 60, 90, size), alone, kv_lens)
    assert_mask(
        lambda n, m: js.block_masks.lengths(n, 60, 90, size, q_lens=m),
        alone & (q < q_lens[:, None, None, None]),
        kv_lens,
        q_lens,
    )


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_global_tokens(size):
    at = np.array([[0, 40, 7, 40], [99, -1, 100, 64]])
    held = np.zeros((2, 100), bool)
    held[0, [0, 40, 7]] = held[1, [99, 64]] = True
    want = held[:, None, :, None] | held[:, None, None]
    assert_mask(lambda p: js.block_masks.global_tokens(p, 100, size), want, at)
    everywhere = js.block_masks.global_tokens(np.arange(100), 100, size)
    assert everywhere.full_block_bits().all()
    q, kv = ogrid(100, 100)
    assert_mask(
        lambda p: (
            js.block_masks.sliding_window(100, None, size, left=10, right=10)
            | js.block_masks.global_tokens(p, 100, size)
        ),
        want | (abs(q - kv) <= 10),
        at,
    )


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_bars(size):
    rng = np.random.default_rng(0)
    bar = np.sort(rng.integers(0, 9, (2, 90)))
    summary = np.pad(bar[:, 1:] != bar[:, :-1], ((0, 0), (0, 1)), constant_values=True)
    want = np.zeros((2, 1, 90, 90), bool)
    for b, q, k in np.ndindex(2, 90, 90):
        back = bar[b, q] - bar[b, k]
        if q < k:
            continue
        if summary[b, q]:
            want[b, 0, q, k] = back == 0
        elif summary[b, k]:
            want[b, 0, q, k] = back > 0
        else:
            want[b, 0, q, k] = back in (0, 1, 3)
    assert_mask(
        lambda i, s: js.block_masks.bars(i, size, related=(1, 3), summary=s), want, bar, summary
    )
    plain = js.block_masks.bars(bar[0], size, related=())
    q, kv = ogrid(90, 90)
    np.testing.assert_array_equal(plain.to_dense()[0, 0], (bar[0][:, None] == bar[0]) & (q >= kv))


@pytest.mark.parametrize("k", [0, 1, 3, 99])
def test_top_k_blocks(k):
    scores = np.random.default_rng(0).standard_normal((2, 3, 4, 6)).astype(np.float32)
    scores[0, 0, 0] = -np.inf
    scores[0, 1, 1, :3] = np.nan
    usable = np.where(np.isnan(scores), -np.inf, scores)
    order = np.argsort(-usable, -1, kind="stable")[..., :k]
    bits = np.zeros(scores.shape, bool)
    np.put_along_axis(bits, order, True, -1)
    bits &= usable > -np.inf
    made = jax.jit(lambda s: js.block_masks.top_k_blocks(s, k, (32, 16), 120, 90))(scores)
    np.testing.assert_array_equal(made.block_bits(), bits)
    np.testing.assert_array_equal(made.full_block_bits(), bits)


def test_top_k_blocks_causal():
    scores = np.random.default_rng(0).standard_normal((1, 2, 6, 6)).astype(np.float32)
    made = js.block_masks.top_k_blocks(scores, 3, 16, 90, 90, causal=True)
    bits = np.asarray(made.block_bits())
    assert bits[:, :, np.arange(6), np.arange(6)].all()
    np.testing.assert_array_equal(bits.sum(-1)[0, 0], np.minimum(np.arange(6) + 1, 3))
    assert not np.triu(bits, 1).any()
    for h, q in np.ndindex(2, 6):
        past = scores[0, h, q, :q]
        np.testing.assert_array_equal(bits[0, h, q, :q], past >= np.sort(past)[-2:][:1])
    q, kv = ogrid(90, 90)
    dense = np.repeat(np.repeat(bits, 16, 2), 16, 3)[:, :, :90, :90] & (q >= kv)
    np.testing.assert_array_equal(made.to_dense(), dense)


@pytest.mark.parametrize("n", [0, 1])
def test_masks_of_nothing_and_of_one_token(n):
    none = np.zeros((2, n), np.int32)
    scores = np.zeros((1, 1, n, n), np.float32)
    made = {
        "causal": js.block_masks.causal(n),
        "no keys": js.block_masks.causal(3, n, 16),
        "window": js.block_masks.sliding_window(n, left=3),
        "document": js.block_masks.document(np.array([0, n]), n),
        "prefix": js.block_masks.prefix(0, n),
        "lengths": js.block_masks.lengths(np.array([n, n]), n, n),
        "no batch": js.block_masks.lengths(np.zeros(0, int), n, n),
        "global": js.block_masks.global_tokens(none, n),
        "bars": js.block_masks.bars(none),
        "blocks": js.block_masks.top_k_blocks(scores, 1, 16, n, n, causal=True),
        "query": js.block_masks.causal(n, 5).at_query(0),
    }
    for name, mask in made.items():
        assert not bool(mask.overflow), name
        dense = np.asarray(mask.to_dense())
        assert dense.shape == mask.shape, name
        if n and name not in ("no keys", "no batch", "query"):
            assert dense.all(), name
    np.testing.assert_array_equal(made["query"].to_dense()[0, 0, 0], np.arange(5) < n)


def test_errors():
    make = js.block_masks
    with pytest.raises(TypeError, match="offset must be an int"):
        make.causal(8, offset=1.5)
    with pytest.raises(ValueError, match="left has shape"):
        make.sliding_window(8, left=np.zeros((2, 2), int))
    with pytest.raises(
        ValueError, match=r"left=-1; it takes 0 or more keys .no limit: left=kv_len"
    ):
        make.sliding_window(8, left=-1)
    with pytest.raises(ValueError, match="right=-2"):
        make.sliding_window(8, left=1, right=np.int64(-2))
    with pytest.raises(ValueError, match="cu_seqlens is empty"):
        make.document(np.zeros(0, int), 8)
    with pytest.raises(TypeError, match="cu_seqlens has dtype"):
        make.document(np.zeros(3), 8)
    with pytest.raises(TypeError, match="positions must be an array"):
        make.global_tokens([1, 2], 8)
    with pytest.raises(TypeError, match="related"):
        make.bars(np.zeros(8, int), related=3)
    with pytest.raises(ValueError, match="summary is bool"):
        make.bars(np.zeros(8, int), summary=np.zeros(9, bool))
    with pytest.raises(ValueError, match=r"\(B, H, 2, 3\)"):
        make.top_k_blocks(np.zeros((1, 1, 2, 2), np.float32), 1, 16, 20, 40)
    with pytest.raises(TypeError, match="floats"):
        make.top_k_blocks(np.zeros((1, 1, 2, 3), int), 1, 16, 20, 40)
    with pytest.raises(ValueError, match="k=-1"):
        make.top_k_blocks(np.zeros((1, 1, 2, 3), np.float32), -1, 16, 20, 40)
