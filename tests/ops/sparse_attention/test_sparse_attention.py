"""sparse_attention against float64: drawn shapes, masks of every form, and data that is wrong."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ops.op_spec import assert_close
from ops.sparse_attention.oracle import attention, dense_of, lists_of, mask_of

import jaxsparse as js
from jaxsparse.ops.sparse_attention import native
from jaxsparse.ops.sparse_attention.params import AttentionParams, Forward

IMPLEMENTATIONS = ["cuda" if jax.default_backend() == "gpu" else "cpu", "reference"]


@pytest.fixture(autouse=True, scope="module")
def in_float32():
    """A GPU's kernels and its reference multiply float32 as float32."""
    with jax.default_matmul_precision("highest"):
        yield


def normal(rng, *shape):
    return rng.standard_normal(shape, np.float32)


def operands(rng, batch, q_len, kv_len, heads, kv_heads, depth, v_depth):
    return (
        normal(rng, batch, q_len, heads, depth),
        normal(rng, batch, kv_len, kv_heads, depth),
        normal(rng, batch, kv_len, kv_heads, v_depth),
    )


def blocks(rng, shape, block, fill=0.5, slots=3):
    """Lists and words of a drawn mask, [b, h, q_len, kv_len]."""
    b, h, q_len, kv_len = shape
    grid = (b, h, -(-q_len // block[0]), -(-kv_len // block[1]))
    codes = np.where(rng.random(grid) < fill, rng.integers(-1, slots, grid), -2)
    words = rng.integers(0, 2**32, (slots, block[0], -(-block[1] // 32)), np.uint32)
    return lists_of(codes), words


def scale_of(q):
    return 1 / max(q.shape[3], 1) ** 0.5


def assert_same(found, wanted, scale=1.0):
    """(out, lse) of the op and of the oracle."""
    out, lse = (np.asarray(v) for v in found)
    assert_close(out, wanted[0], "float32", scale)
    some = np.isfinite(wanted[1])
    np.testing.assert_array_equal(np.isfinite(lse), some)
    assert (lse[~some] == -np.inf).all()
    assert_close(np.where(some, lse, 0), np.where(some, wanted[1], 0), "float32", scale)


sizes = st.integers(1, 70)
sides = st.sampled_from([16, 32, 48, 80, 128, 256])


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    lengths=st.tuples(st.integers(1, 300), st.integers(1, 300)),
    block=st.tuples(sides, sides),
    heads=st.sampled_from([(1, 1), (2, 2), (4, 2), (3, 1), (6, 2)]),
    depths=st.tuples(sizes, sizes),
    shared=st.tuples(st.booleans(), st.booleans()),
    fill=st.sampled_from([0.0, 0.2, 0.7, 1.0]),
)
def test_drawn_shapes(implementation, seed, lengths, block, heads, depths, shared, fill):
    rng = np.random.default_rng(seed)
    q, k, v = operands(rng, 2, *lengths, *heads, *depths)
    shape = (1 if shared[0] else 2, 1 if shared[1] else heads[0], *lengths)
    lists, words = blocks(rng, shape, block, fill)
    mask = mask_of(lists, words, block, *lengths)
    keep = dense_of(lists, words, block, *lengths)
    found = js.sparse_attention(q, k, v, mask, return_lse=True, implementation=implementation)
    exact = [x.astype(np.float64) for x in (q, k, v)]
    assert_same(found, attention(*exact, keep, scale=scale_of(q)))


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    lengths=st.tuples(st.integers(1, 200), st.integers(1, 200)),
    block=st.tuples(sides, sides),
    heads=st.sampled_from([(2, 2), (4, 2), (3, 1)]),
    depths=st.tuples(sizes, sizes),
    options=st.fixed_dictionaries(
        {"soft_cap": st.sampled_from([None, 2.0]), "alibi": st.booleans(), "biased": st.booleans()}
    ),
)
def test_drawn_gradients(seed, lengths, block, heads, depths, options):
    """The kernel's, of both results, against the reference's."""
    rng = np.random.default_rng(seed)
    arrays = operands(rng, 2, *lengths, *heads, *depths)
    mask = mask_of(*blocks(rng, (2, heads[0], *lengths), block), block, *lengths)
    more = {
        "soft_cap": options["soft_cap"],
        "slopes": normal(rng, heads[0]) / 64 if options["alibi"] else None,
        "bias": normal(rng, 1, heads[0], *lengths) if options["biased"] else None,
    }
    weights = normal(rng, 2, lengths[0], heads[0], depths[1]), normal(rng, 2, heads[0], lengths[0])

    def loss(arrays, implementation):
        out, lse = js.sparse_attention(
            *arrays, mask, return_lse=True, implementation=implementation, **more
        )
        lse = jnp.where(jnp.isfinite(lse), lse, jnp.zeros_like(lse))
        return (out * weights[0]).sum() + (lse * weights[1]).sum()

    got, want = (
        jax.grad(functools.partial(loss, implementation=i))(arrays) for i in IMPLEMENTATIONS
    )
    for one, other in zip(got, want, strict=True):
        assert_close(one, other, "float32", 4)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("depth", [32, 64, 96, 128, 192, 256])
def test_gradients_at_every_depth(implementation, depth, rng):
    """Against differences of the oracle: a depth of 64 under a mask of blocks is one that peers had
    wrong, without an error.
    """
    q, k, v = operands(rng, 1, 96, 160, 2, 1, depth, depth)
    block = (32, 64)
    lists, words = blocks(rng, (1, 2, 96, 160), block)
    keep = dense_of(lists, words, block, 96, 160)
    mask = mask_of(lists, words, block, 96, 160)
    weights = normal(rng, 1, 96, 2, depth)
    ways = operands(rng, 1, 96, 160, 2, 1, depth, depth)

    def exact(step):
        moved = [x.astype(np.float64) + step * w for x, w in zip((q, k, v), ways, strict=True)]
        return (attention(*moved, keep, scale=scale_of(q))[0] * weights).sum()

    def loss(q, k, v):
        return (js.sparse_attention(q, k, v, mask, implementation=implementation) * weights).sum()

    found = jax.grad(loss, (0, 1, 2))(q, k, v)
    slope = sum(float((np.float64(g) * w).sum()) for g, w in zip(found, ways, strict=True))
    want = (exact(1e-6) - exact(-1e-6)) / 2e-6
    size = sum(float(np.abs(np.float64(g) * w).sum()) for g, w in zip(found, ways, strict=True))
    assert abs(slope - want) <= 1e-5 * size


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_it_is_the_dense_operation_on_a_full_mask(implementation, rng):
    q, k, v = operands(rng, 2, 100, 90, 4, 2, 16, 16)
    mask = js.BlockMask.from_dense(np.ones((1, 1, 100, 90), bool), 32)
    got = js.sparse_attention(q, k, v, mask, implementation=implementation)
    assert_close(got, jax.nn.dot_product_attention(q, k, v), "float32")


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_masks_that_functions_describe(implementation, rng):
    """Causal, a window, documents at run time; the blocks of a mask are not a kernel's tile."""
    q, k, v = operands(rng, 1, 200, 200, 2, 2, 16, 16)
    starts = np.asarray([0, 37, 120, 200])

    @functools.partial(jax.jit, static_argnums=1)
    def run(starts, block):
        document = jnp.searchsorted(starts, jnp.arange(200), side="right")

        def keep(b, h, i, j):
            return (i >= j) & (i - j < 64) & (document[i] == document[j])

        mask = js.create_block_mask(keep, 1, 1, 200, 200, block)
        return js.sparse_attention(q, k, v, mask, return_lse=True, implementation=implementation)

    i, j = np.arange(200)[:, None], np.arange(200)
    names = np.searchsorted(starts, np.arange(200), side="right")
    keep = (i >= j) & (i - j < 64) & (names[:, None] == names)
    exact = [x.astype(np.float64) for x in (q, k, v)]
    want = attention(*exact, keep[None, None], scale=scale_of(q))
    for block in ((16, 16), (128, 32), (48, 256)):
        assert_same(run(jnp.asarray(starts), block), want)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_lists_that_are_wrong(implementation, rng):
    """Counts past the end or negative, blocks and slots out of range: they count as not listed."""
    q, k, v = operands(rng, 1, 64, 96, 2, 2, 8, 8)
    block = (16, 32)
    lists, words = blocks(rng, (1, 2, 64, 96), block)
    counts, listed, slots = (v.copy() for v in lists[:3])
    counts[0, 0] = [99, -5, 2, 3]
    listed[0, 0, 2] = [-1, 2**31 - 1, 0]
    listed[0, 0, 3], slots[0, 0, 3] = [0, 1, 2], [-2, 3, -1]
    wild = (counts, listed, slots, *lists[3:])
    listed[0, 0, 0], slots[0, 0, 0] = [0, 1, 2], [-1, 0, 1]
    keep = dense_of(wild, words, block, 64, 96)
    mask = mask_of(wild, words, block, 64, 96)
    found = js.sparse_attention(q, k, v, mask, return_lse=True, implementation=implementation)
    exact = [x.astype(np.float64) for x in (q, k, v)]
    assert_same(found, attention(*exact, keep, scale=scale_of(q)))


def amid_junk(lists, columns):
    """The lists with entries out of range in front and in the middle."""
    counts, listed, slots = (v.copy() for v in lists)
    for at in np.ndindex(counts.shape):
        n = counts[at]
        if n + 3 > columns:
            continue
        half = n // 2
        for array, junk in ((listed, [-5, columns + 3, 2**30]), (slots, [0, 0, 0])):
            own = array[at][:n]
            array[at][: n + 3] = [*junk[:2], *own[:half], junk[2], *own[half:]]
        counts[at] = n + 3
    return counts, listed, slots


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_long_lists_amid_entries_out_of_range(implementation, rng):
    """Lists longer than what a kernel reads at a time, forward and transposed: 1100 blocks."""
    kv_len, block = 16 * 1100, (16, 16)
    q, k, v = operands(rng, 1, 32, kv_len, 1, 1, 8, 8)
    lists, words = blocks(rng, (1, 1, 32, kv_len), block, 0.1)
    wild = (*amid_junk(lists[:3], 1100), *amid_junk(lists[3:], 2))
    mask, clean = (mask_of(each, words, block, 32, kv_len) for each in (wild, lists))

    def run(mask):
        op = functools.partial(js.sparse_attention, implementation=implementation)
        return jax.value_and_grad(lambda *a: op(*a, mask).sum(), (0, 1, 2))(q, k, v)

    for got, want in zip(jax.tree.leaves(run(mask)), jax.tree.leaves(run(clean)), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_a_query_whose_biases_are_all_minus_infinity(implementation, rng):
    """As one that the mask keeps nothing for: 0, and gradients of 0; the others are not touched."""
    q, k, v = operands(rng, 1, 40, 40, 2, 2, 8, 8)
    lists, words = blocks(rng, (1, 1, 40, 40), (16, 16), 1.0)
    mask = mask_of(lists, words, (16, 16), 40, 40)
    bias = np.zeros((1, 1, 40, 40), np.float32)
    bias[..., 5, :] = -np.inf
    keep = dense_of(lists, words, (16, 16), 40, 40) & np.isfinite(bias)

    def run(q, k, v):
        op = functools.partial(js.sparse_attention, implementation=implementation)
        return op(q, k, v, mask, bias=bias, return_lse=True)

    exact = [x.astype(np.float64) for x in (q, k, v)]
    assert_same(run(q, k, v), attention(*exact, keep, scale=scale_of(q)))
    dq, dk, dv = jax.grad(lambda *a: run(*a)[0].sum(), (0, 1, 2))(q, k, v)
    assert not np.asarray(dq)[:, 5].any()
    assert all(np.isfinite(np.asarray(each)).all() for each in (dq, dk, dv))


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_a_block_that_is_listed_twice_stays_finite(implementation, rng):
    q, k, v = operands(rng, 1, 32, 32, 1, 1, 8, 8)
    lists, words = blocks(rng, (1, 1, 32, 32), (16, 16), 1.0)
    twice = (lists[0], np.zeros_like(lists[1]), *lists[2:])
    mask = mask_of(twice, words, (16, 16), 32, 32)
    assert np.isfinite(js.sparse_attention(q, k, v, mask, implementation=implementation)).all()


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize(
    "shape", [(1, 0, 40, 2, 2), (1, 40, 0, 2, 2), (1, 1, 1, 1, 1), (2, 1, 300, 4, 1)], ids=str
)
def test_no_tokens_and_one_token(implementation, shape, rng):
    batch, q_len, kv_len, heads, kv_heads = shape
    arrays = operands(rng, batch, q_len, kv_len, heads, kv_heads, 8, 8)
    mask = js.BlockMask.from_dense(np.ones((1, 1, q_len, kv_len), bool), 16)
    run = functools.partial(js.sparse_attention, return_lse=True, implementation=implementation)
    exact = [x.astype(np.float64) for x in arrays]
    assert_same(run(*arrays, mask), attention(*exact, mask.to_dense(), scale=scale_of(arrays[0])))
    slopes = jax.grad(lambda a: run(*a, mask)[0].sum())(arrays)
    assert all(np.isfinite(np.asarray(g)).all() for g in slopes)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_scale_zero_is_the_mean_and_large_scores_stay_finite(implementation, rng):
    q, k, v = operands(rng, 1, 48, 64, 2, 2, 8, 8)
    keep = np.tril(np.ones((48, 64), bool), -1)[None, None]
    mask = js.BlockMask.from_dense(keep, 16)
    run = functools.partial(js.sparse_attention, implementation=implementation, return_lse=True)
    exact = [x.astype(np.float64) for x in (q, k, v)]
    assert_same(run(q, k, v, mask, scale=0), attention(*exact, keep, scale=0))
    assert_same(run(q, k, v, mask, scale=300.0), attention(*exact, keep, scale=300.0), 40)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("soft_cap", [0.5, 30.0, 1e5])
def test_soft_caps(implementation, soft_cap, rng):
    """Of scores far beyond it, and so high that it changes nothing."""
    q, k, v = operands(rng, 1, 48, 64, 2, 2, 8, 8)
    mask = js.BlockMask.from_dense(rng.random((1, 1, 48, 64)) < 0.5, 16)
    keep = np.asarray(mask.to_dense())
    run = functools.partial(js.sparse_attention, implementation=implementation, return_lse=True)
    exact = [x.astype(np.float64) for x in (q, k, v)]
    want = attention(*exact, keep, scale=1, soft_cap=soft_cap)
    assert_same(run(q, k, v, mask, scale=1, soft_cap=soft_cap), want)


def test_slopes_and_bias_have_no_derivative(rng):
    q, k, v = operands(rng, 1, 32, 32, 2, 2, 8, 8)
    mask = js.BlockMask.from_dense(np.ones((1, 1, 32, 32), bool), 16)
    for name, value in (("slopes", np.ones(2)), ("bias", np.ones((1, 1, 32, 32)))):

        def loss(value, name=name):
            return js.sparse_attention(q, k, v, mask, **{name: value}).sum()

        with pytest.raises(ValueError, match=f"{name} has no derivative in sparse_attention"):
            jax.grad(loss)(value.astype(np.float32))


def test_explain_counts_blocks_and_names_the_variant(rng):
    q, k, v = operands(rng, 1, 64, 64, 2, 2, 8, 8)
    mask = js.BlockMask.from_block_bits(np.eye(4, dtype=bool)[None, None], 16, 64, 64)
    told = js.explain(js.sparse_attention, q, k, v, mask)
    assert "4 of 16 blocks (25.0 %), skipped 12" in str(told)
    if jax.default_backend() == "cpu":
        assert told.calls[0].variant(4) == "blocked"
        with js.config(variant="dense"):
            dense = js.explain(js.sparse_attention, q, k, v, mask)
        assert dense.calls[0].variant(4) == "dense"
        assert_close(dense.result, told.result, "float32")


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="runs the arrays of CUDA on the CPU")
def test_heads_that_are_padded_for_cuda_give_the_same(rng):
    q, k, v = operands(rng, 1, 40, 56, 2, 1, 13, 21)
    lists, words = blocks(rng, (1, 1, 40, 56), (16, 32))
    arrays = Forward(q, k, v, *lists[:3], words, None, None)
    wide = native._padded(arrays, "cuda")
    assert [x.shape[3] for x in wide[:3]] == [16, 16, 24]
    params = AttentionParams((16, 32), 0.3, 0.0, "default")
    out, lse = native.forward(params, "cpu", "blocked", *wide)
    want = native.forward(params, "cpu", "blocked", *arrays)
    np.testing.assert_array_equal(out[..., 21:], 0)
    assert_close(out[..., :21], want[0], "float32")
    assert_close(np.exp(lse), np.exp(want[1]), "float32")
