"""The gradient that adds up dq in global memory, `wgmma_reduce`: against float64, on a Hopper; and
which problems choose it, anywhere.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ops.op_spec import assert_close
from ops.sparse_attention.oracle import dense_of, gradients, lists_of, mask_of

import jaxsparse as js
from jaxsparse.select import sparse_attention as chooser

NAME = "wgmma_reduce"
DEPTHS = pytest.mark.parametrize("depth", [64, 128])


@pytest.fixture
def hopper():
    """Skips where the kernel does not run."""
    if jax.devices()[0].compute_capability != "9.0":
        pytest.skip("a kernel for compute capability 9.0")


def problem(
    rng, *, batch=2, q_len=300, kv_len=333, heads=(4, 2), block=(64, 128), fill=0.5, depth=128
):
    """q, k, v, gout, glse, codes of blocks, and words."""
    shapes = ((q_len, heads[0]), (kv_len, heads[1]), (kv_len, heads[1]), (q_len, heads[0]))
    arrays = [rng.standard_normal((batch, n, h, depth), np.float32) for n, h in shapes]
    arrays.append(rng.standard_normal((batch, heads[0], q_len), np.float32))
    grid = (batch, heads[0], -(-q_len // block[0]), -(-kv_len // block[1]))
    codes = np.where(rng.random(grid) < fill, rng.integers(-1, 3, grid), -2)
    words = rng.integers(0, 2**32, (3, block[0], -(-block[1] // 32)), np.uint32)
    return arrays, codes, words


def run_of(mask):
    """(q, k, v, gout, glse) -> (dq, dk, dv) by the kernel, jitted."""

    def run(q, k, v, gout, glse):
        _, back = jax.vjp(lambda *x: js.sparse_attention(*x, mask, return_lse=True), q, k, v)
        return back((gout, glse))

    return jax.jit(run)


def found(arrays, mask, dtype):
    """The kernel's gradients and the rounded operands in float64."""
    given = [jnp.asarray(x, dtype) for x in arrays[:4]]
    with js.config(variant=NAME):
        got = run_of(mask)(*given, jnp.asarray(arrays[4]))
    exact = [np.asarray(x.astype(jnp.float32), np.float64) for x in given]
    return got, (*exact, np.asarray(arrays[4], np.float64))


def check(got, exact, keep, dtype):
    """All three gradients against float64."""
    want = gradients(*exact, keep, scale=exact[0].shape[3] ** -0.5)
    for one, other in zip(got, want, strict=True):
        assert_close(one.astype(jnp.float32), other, dtype, 2)


@pytest.mark.gpu
@pytest.mark.usefixtures("hopper")
@DEPTHS
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    "block", [(16, 128), (48, 128), (64, 128), (128, 128), (64, 256), (256, 256)], ids=str
)
@pytest.mark.parametrize(("fill", "heads"), [(0.1, (6, 1)), (0.6, (4, 2)), (1.0, (3, 3))], ids=str)
def test_values(dtype, block, fill, heads, depth, rng):
    """Partial and full blocks, ragged lengths, grouped heads, lists of every head."""
    arrays, codes, words = problem(rng, depth=depth, heads=heads, block=block, fill=fill)
    lists = lists_of(codes)
    got, exact = found(arrays, mask_of(lists, words, block, 300, 333), dtype)
    check(got, exact, dense_of(lists, words, block, 300, 333), dtype)


@pytest.mark.gpu
@pytest.mark.usefixtures("hopper")
@DEPTHS
@pytest.mark.parametrize("sizes", [(1, 1), (15, 129), (64, 128), (129, 127), (700, 40)], ids=str)
def test_lengths(sizes, depth, rng):
    """Lengths that end within a strip, a tile and a block; all blocks full."""
    arrays, codes, words = problem(
        rng, depth=depth, q_len=sizes[0], kv_len=sizes[1], heads=(2, 1), fill=1.0
    )
    lists = lists_of(np.full_like(codes, -1))
    got, exact = found(arrays, mask_of(lists, words, (64, 128), *sizes), "bfloat16")
    check(got, exact, dense_of(lists, words, (64, 128), *sizes), "bfloat16")


@pytest.mark.gpu
@pytest.mark.usefixtures("hopper")
def test_large_scores_at_the_edge(rng):
    """Keys past the last have scores of 0, whose probabilities would be infinite."""
    arrays, codes, words = problem(rng, q_len=128, kv_len=140, heads=(2, 2))
    arrays[0][:], arrays[1][:] = 12.0, -12.0
    lists = lists_of(np.full_like(codes, -1))
    got, exact = found(arrays, mask_of(lists, words, (64, 128), 128, 140), "bfloat16")
    check(got, exact, dense_of(lists, words, (64, 128), 128, 140), "bfloat16")


@pytest.mark.gpu
@pytest.mark.usefixtures("hopper")
@DEPTHS
def test_more_tiles_than_processors(depth, rng):
    """Each CTA takes several tiles of keys, and its rings turn over many times."""
    block = (128, 128)
    sizes = {"batch": 3, "q_len": 530, "kv_len": 1024, "heads": (16, 8)}
    arrays, codes, words = problem(rng, depth=depth, **sizes, block=block, fill=0.7)
    codes[:, :, :, 3] = -2  # keys that nothing attends
    lists = lists_of(codes)
    got, exact = found(arrays, mask_of(lists, words, block, 530, 1024), "bfloat16")
    check(got, exact, dense_of(lists, words, block, 530, 1024), "bfloat16")


@pytest.mark.gpu
@pytest.mark.usefixtures("hopper")
@DEPTHS
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_shared_lists(dtype, depth, rng):
    """One list for the whole batch and every head."""
    arrays, codes, words = problem(rng, depth=depth, batch=3)
    lists = lists_of(codes[:1, :1])
    got, exact = found(arrays, mask_of(lists, words, (64, 128), 300, 333), dtype)
    check(got, exact, dense_of(lists, words, (64, 128), 300, 333), dtype)


@pytest.mark.gpu
@pytest.mark.usefixtures("hopper")
@DEPTHS
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_unread_rows_hold_nan(bad, depth, rng):
    """Rows that attend to nothing and keys that nothing attends have gradients of 0, whatever they
    hold; they reach nothing else.
    """
    arrays, codes, words = problem(rng, depth=depth, fill=0.7)
    codes[codes == -1] = 0  # partial blocks alone
    words[:, ::3] = 0
    words[..., 0] &= np.uint32(0xFFFF00FF)
    lists = lists_of(codes)
    keep = dense_of(lists, words, (64, 128), 300, 333)
    no_query = ~keep.any(3).swapaxes(1, 2)
    no_key = ~keep.reshape(2, 2, 2, 300, 333).any((2, 3)).swapaxes(1, 2)
    assert no_query.any()
    assert no_key.any()
    for i, dead in ((0, no_query), (1, no_key), (2, no_key), (3, no_query)):
        arrays[i][dead] = bad
    got, exact = found(arrays, mask_of(lists, words, (64, 128), 300, 333), "bfloat16")
    clean = [np.nan_to_num(x, nan=0, posinf=0) for x in exact]
    check(got, clean, keep, "bfloat16")
    for one, dead in zip(got, (no_query, no_key, no_key), strict=True):
        assert not np.asarray(one.astype(jnp.float32))[dead].any()


@pytest.mark.gpu
@pytest.mark.usefixtures("hopper")
@DEPTHS
def test_nan_stays_in_its_block_of_queries(depth, rng):
    """NaN in a key of one block of queries reaches no other block's dq."""
    arrays, codes, words = problem(rng, depth=depth, q_len=256, kv_len=256, heads=(2, 2))
    codes[:] = 0
    codes[:, :, 1:] = 1
    words[1, :, 0] &= np.uint32(0xFFFFFFFE)  # key 0 of a block counts for the first queries alone
    words[0, :, 0] |= np.uint32(1)
    lists = lists_of(codes)
    arrays[1][:, 0] = np.nan
    got, exact = found(arrays, mask_of(lists, words, (64, 128), 256, 256), "bfloat16")
    keep = dense_of(lists, words, (64, 128), 256, 256)
    dq = np.asarray(got[0].astype(jnp.float32))
    assert np.isnan(dq[:, :64]).all()
    want = gradients(*[np.nan_to_num(x) for x in exact], keep, scale=depth**-0.5)
    assert_close(dq[:, 64:], want[0][:, 64:], "bfloat16", 2)


def corrupted(lists, rng):
    """The same lists with entries out of range, and counts past the end of what is full."""
    counts, blocks, slots = (v.copy() for v in lists)
    for place in np.ndindex(counts.shape):
        columns = blocks.shape[-1]
        if counts[place] == columns:
            counts[place] = columns + 7
            continue
        at = (*place, counts[place])
        kind = rng.integers(0, 3)
        blocks[at] = (-3, columns + 2, 0)[kind]
        slots[at] = (-1, 0, 2**20)[kind]
        counts[place] += 1
    return counts, blocks, slots


@pytest.mark.gpu
@pytest.mark.usefixtures("hopper")
@DEPTHS
def test_hostile_lists(depth, rng):
    """Blocks, slots and counts out of range count as not listed."""
    arrays, codes, words = problem(rng, depth=depth)
    lists = lists_of(codes)
    bad = (*corrupted(lists[:3], rng), *corrupted(lists[3:], rng))
    got, exact = found(arrays, mask_of(bad, words, (64, 128), 300, 333), "bfloat16")
    check(got, exact, dense_of(lists, words, (64, 128), 300, 333), "bfloat16")


@pytest.mark.gpu
@pytest.mark.usefixtures("hopper")
@DEPTHS
def test_repeats(depth, rng):
    """dk and dv are the same bits in every run, and dq under deterministic=True."""
    arrays, codes, words = problem(rng, depth=depth, q_len=600, kv_len=1200)
    mask = mask_of(lists_of(codes), words, (64, 128), 600, 1200)
    given = [*(jnp.asarray(x, "bfloat16") for x in arrays[:4]), jnp.asarray(arrays[4])]
    for settings, first in (({"variant": NAME}, 1), ({"deterministic": True}, 0)):
        with js.config(**settings):
            run = run_of(mask)
            want = run(*given)
            for _ in range(4):  # other addresses, command buffers
                again = run(*[x + jnp.zeros_like(x) for x in given])
                for one, other in zip(again[first:], want[first:], strict=True):
                    np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def asked(**changed):
    """A problem on CUDA that the kernel takes, but for `changed`."""
    shapes = {"q": (1, 512, 4, 128), "k": (1, 512, 2, 128), "v_depth": 128}
    rest = {"block_size": (64, 128), "blocks": 32, "slots": 3, "dtype": "bfloat16"}
    given = {**shapes, **rest, "precision": "default", "gradient": True, **changed}
    return chooser.AttentionProblem("cuda", **given)


def test_choice(monkeypatch):
    """The gradient's first choice where it takes the problem; never where the order counts."""
    monkeypatch.setattr(chooser, "is_hopper", lambda: True)
    names = functools.partial(lambda **changed: chooser.candidates(asked(**changed)).names)
    assert names() == (NAME, "wgmma", "mma", "dense")
    assert names(gradient=False) == ("wgmma", NAME, "mma", "dense")
    assert names(q=(1, 512, 4, 64), k=(1, 512, 2, 64), v_depth=64)[0] == NAME
    for changed in ({"block_size": (128, 64)}, {"block_size": (64, 192)}, {"ordered": True}):
        assert names(**changed) == ("wgmma", "mma", "dense")
        assert chooser.against(asked(**changed))[NAME]
    assert names(added=True) == ("mma", "dense")
    monkeypatch.setattr(chooser, "is_hopper", lambda: False)
    assert names() == ("mma", "dense")
