"""Training with blocks that exist only where the mask is, against masked dense weights."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxsparse as js

SHAPE, BLOCK = (60, 130), (32, 64)  # the last blocks reach past both edges
GRID, ROOM = (2, 3), 4
RNG = np.random.default_rng(0)
W = RNG.standard_normal(SHAPE).astype(np.float32)
X, Y = (RNG.standard_normal((n, 16)).astype(np.float32) for n in (130, 60))


def draw(rng):
    mask = np.zeros(6, bool)
    mask[rng.permutation(6)[:ROOM]] = True
    return jnp.asarray(mask.reshape(GRID))


def entries(mask):
    return jnp.repeat(jnp.repeat(mask, BLOCK[0], 0), BLOCK[1], 1)[: SHAPE[0], : SHAPE[1]]


def test_blocks_there_and_back():
    mask = draw(np.random.default_rng(1))
    kept = js.kept_blocks(mask, SHAPE, BLOCK, capacity=5)
    values = kept.take(W)
    assert values.shape == (5, *BLOCK)
    assert int(kept.count) == ROOM
    assert not bool(kept.overflow)
    np.testing.assert_array_equal(kept.mask, mask)
    np.testing.assert_array_equal(kept.dense(values), np.where(entries(mask), W, 0))
    np.testing.assert_array_equal(kept.ids, [*np.flatnonzero(mask), -1])
    np.testing.assert_array_equal(values[4], 0)
    # Each is the transpose of the other.
    (back,) = jax.vjp(kept.take, W)[1](values)
    np.testing.assert_array_equal(back, kept.dense(values))
    (blocks,) = jax.vjp(kept.dense, values)[1](W)
    np.testing.assert_array_equal(blocks, values)


def test_what_does_not_fit_is_flagged():
    full = np.ones(GRID, bool)
    kept = js.kept_blocks(full, SHAPE, BLOCK, capacity=2)
    assert bool(kept.overflow)
    assert int(kept.count) == 2
    np.testing.assert_array_equal(kept.mask, [[True, True, False], [False] * 3])
    with js.checked(), pytest.raises(ValueError, match="keeps 6 blocks, and capacity=2"):
        js.kept_blocks(full, SHAPE, BLOCK, capacity=2)
    none = js.kept_blocks(full, SHAPE, BLOCK, capacity=0)
    assert bool(none.overflow)
    np.testing.assert_array_equal(none.dense(none.take(W)), np.zeros(SHAPE))


def test_training_equals_masked_dense(implementation):
    """Adam under a new mask in every step: a block that is left out forgets its value and moments,
    and one that comes back starts at zero.
    """
    # `eps` is not tiny: Adam divides a gradient that rounds to about 0 by its own size.
    optimizer = optax.adam(0.05, eps=1e-3)

    def sparse_loss(values, kept):
        y = js.kept_matmul(values, kept, X, precision="highest", implementation=implementation)
        return ((y - Y) ** 2).mean()

    def dense_loss(w, keep):
        return ((jnp.matmul(w * keep, X, precision="highest") - Y) ** 2).mean()

    @jax.jit
    def sparse_step(values, state, old, mask):
        kept = js.kept_blocks(mask, SHAPE, BLOCK, capacity=ROOM)
        values = kept.move(values, old)
        state = optax.tree_map_params(optimizer, lambda v: kept.move(v, old), state)
        gradient = jax.grad(sparse_loss)(values, kept)
        assert gradient.shape == values.shape
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(values, updates), state, kept

    @jax.jit
    def dense_step(w, state, mask):
        keep = entries(mask).astype(np.float32)
        w, state = w * keep, optax.tree_map_params(optimizer, lambda v: v * keep, state)
        updates, state = optimizer.update(jax.grad(dense_loss)(w, keep), state)
        return optax.apply_updates(w, updates), state

    rng = np.random.default_rng(2)
    kept = js.kept_blocks(draw(rng), SHAPE, BLOCK, capacity=ROOM)
    values, w = kept.take(W), jnp.where(entries(kept.mask), W, 0)
    state, dense_state = optimizer.init(values), optimizer.init(w)
    with jax.numpy_dtype_promotion("standard"):  # optax raises a float to an int32 count
        for _ in range(6):
            mask = draw(rng)
            values, state, kept = sparse_step(values, state, kept, mask)
            w, dense_state = dense_step(w, dense_state, mask)
            tight = 2e-5 if jax.default_backend() == "cpu" else 1e-2
            np.testing.assert_allclose(kept.dense(values), w, atol=tight)
    assert max(v.size for v in jax.tree.leaves(state)) == ROOM * 32 * 64


def test_memory_falls_with_the_blocks():
    """Between the passes a chain of layers holds blocks, and not one matrix for each layer."""
    size, layers = 512, 6

    def peak(share):
        room = round(share * (size // 32) ** 2)
        kept = js.kept_blocks(np.ones((16, 16), bool), (size, size), (32, 32), capacity=room)

        def loss(weights, x):
            for values in weights:
                x = jnp.tanh(js.kept_matmul(values, kept, x))
            return x.sum()

        weights = [jnp.zeros((room, 32, 32))] * layers
        memory = jax.jit(jax.grad(loss)).lower(weights, jnp.zeros((size, 8))).compile()
        found = memory.memory_analysis()
        return found.temp_size_in_bytes + found.output_size_in_bytes

    matrix = 4 * size**2
    assert peak(1 / 16) < peak(1.0) - 3 * matrix
    assert peak(1 / 16) < 5 * matrix


BAD = {
    "mask dtype": ({"mask": np.ones(GRID)}, TypeError, "mask has dtype float32; it takes bool"),
    "mask shape": ({"mask": np.ones((3, 3), bool)}, ValueError, r"mask has shape .* need \(2, 3\)"),
    "shape": ({"shape": 60}, TypeError, "shape takes two ints"),
    "granularity": ({"granularity": (0, 64)}, ValueError, r"granularity=\(0, 64\); it takes sizes"),
    "capacity": ({"capacity": -1}, ValueError, "capacity=-1"),
}


@pytest.mark.parametrize("name", BAD)
def test_wrong_arguments(name):
    changed, error, words = BAD[name]
    with pytest.raises(error, match=words):
        js.kept_blocks(
            **{"mask": np.ones(GRID, bool), "shape": SHAPE, "granularity": BLOCK, **changed}
        )


def test_wrong_values():
    kept = js.kept_blocks(np.ones(GRID, bool), SHAPE, BLOCK)
    other = js.kept_blocks(np.ones((2, 5), bool), SHAPE, (32, 32))
    with pytest.raises(ValueError, match=r"weight has shape \(2, 3\); these blocks are of"):
        kept.take(np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"values has shape .* need \(6, 32, 64\)"):
        kept.dense(np.ones((5, 32, 64)))
    with pytest.raises(ValueError, match=r"old has blocks of \(32, 32\)"):
        kept.move(np.ones((10, 32, 32), np.float32), other)
    with pytest.raises(TypeError, match="old must be the KeptBlocks of values, not ndarray"):
        kept.move(np.ones((6, 32, 64)), np.ones(GRID))
