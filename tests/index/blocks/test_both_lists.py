"""The lists of a mask of blocks in both directions, from the state of every block, by every
implementation.
"""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import jaxsparse as js
from jaxsparse.index.blocks.lists import both_lists

SHAPES = [(2, 3, 5, 7), (1, 2, 300, 33), (1, 1, 40, 600), (2, 1, 0, 3), (1, 3, 4, 0), (0, 2, 3, 4)]


def codes_of(shape, listed, seed=0):
    """int32, any number that a code may be; -2 and less is not listed."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(-1, 9, shape)
    return np.where(rng.random(shape) < listed, codes, rng.integers(-4, -1, shape)).astype(np.int32)


def check(codes, found, implementation):
    """Both directions, in numpy."""
    codes, found = np.asarray(codes), [np.asarray(x) for x in found]
    assert {x.dtype for x in found} == {np.dtype(np.int32)}
    for lines, (counts, blocks, slots) in (
        (codes, found[:3]),
        (codes.swapaxes(-1, -2), found[3:]),
    ):
        assert counts.shape == lines.shape[:-1]
        assert blocks.shape == slots.shape == lines.shape
        np.testing.assert_array_equal(counts, (lines > -2).sum(-1))
        for line in np.ndindex(counts.shape):
            (want,) = np.nonzero(lines[line] > -2)
            np.testing.assert_array_equal(blocks[line][: want.size], want)
            np.testing.assert_array_equal(slots[line][: want.size], lines[line][want])
            if implementation != "cuda":
                assert (blocks[line][want.size :] == 0).all()
                assert (slots[line][want.size :] == -1).all()


def lists(implementation, codes):
    with js.config(implementation=implementation):
        return both_lists(codes)


@pytest.mark.parametrize("listed", [0.0, 0.1, 0.9, 1.0])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_against_numpy(implementation, shape, listed):
    codes = codes_of(shape, listed)
    check(codes, lists(implementation, codes), implementation)


@pytest.mark.parametrize("listed", [0.0, 0.1, 0.9])
@pytest.mark.parametrize("shape", [*SHAPES, (2, 1, 600, 64), (1, 1, 33, 2080)], ids=str)
def test_bits_list_full_blocks(implementation, shape, listed):
    bits = np.random.default_rng(1).random(shape) < listed
    codes = np.where(bits, np.int32(-1), np.int32(-2))
    check(codes, lists(implementation, bits), implementation)


@settings(max_examples=10)
@given(
    shape=st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(0, 70), st.integers(0, 70)),
    listed=st.floats(0, 1),
    seed=st.integers(0, 9),
)
def test_any_codes(implementation, shape, listed, seed):
    codes = codes_of(shape, listed, seed)
    check(codes, lists(implementation, codes), implementation)


# Not in the op suite: an index has no suite; the axis is folded into the batch.
def test_vmap(implementation):
    codes = codes_of((2, 4, 3, 5, 40), 0.4)
    for axis in (0, 1):
        with js.config(implementation=implementation):
            found = jax.vmap(both_lists, axis)(codes)
        for i in range(codes.shape[axis]):
            check(codes.take(i, axis), [x[i] for x in found], implementation)


def test_the_handler_is_called(implementation):
    """The lists come from one call, without a sort; the reference has none."""
    with js.config(implementation=implementation):
        text = jax.jit(both_lists).lower(codes_of((1, 2, 5, 7), 0.4)).as_text()
    native = implementation != "reference"
    assert ("jaxsparse_block_lists" in text) == native
    assert ("stablehlo.sort" in text) == (not native)


@pytest.mark.skipif(len(jax.devices()) < 4, reason="needs four devices")
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=str)
@pytest.mark.parametrize("axis", [0, 1])
def test_a_mesh_splits_batch_and_heads(kind, axis):
    codes = codes_of((4, 4, 5, 7), 0.4)
    mesh = jax.make_mesh((4,), ("data",), (kind,), devices=jax.devices()[:4])
    spec = PartitionSpec(*[None] * axis, "data")
    with jax.set_mesh(mesh):
        split = jax.device_put(codes, NamedSharding(mesh, spec))
        run = jax.jit(both_lists).lower(split).compile()
        found = run(split)
    assert "all-gather" not in run.as_text()
    assert all(x.sharding.spec[axis] == "data" for x in found)
    check(codes, found, "cuda" if jax.default_backend() == "gpu" else "cpu")


@pytest.mark.skipif(len(jax.devices()) < 4, reason="needs four devices")
def test_blocks_that_a_mesh_cuts():
    """They are gathered with a warning on Auto axes, and refused on Explicit ones."""
    codes = codes_of((1, 2, 8, 7), 0.4)
    for kind in (AxisType.Auto, AxisType.Explicit):
        mesh = jax.make_mesh((4,), ("data",), (kind,), devices=jax.devices()[:4])
        spec = PartitionSpec(None, None, "data")
        split = jax.device_put(codes, NamedSharding(mesh, spec))
        if kind == AxisType.Auto:
            with pytest.warns(RuntimeWarning, match=r"mask axis -2 .* the blocks of all queries"):
                found = both_lists(split)
            check(codes, found, "cuda" if jax.default_backend() == "gpu" else "cpu")
        else:
            with jax.set_mesh(mesh), pytest.raises(ValueError, match=r"mask axis -2 .* reshard"):
                both_lists(split)
