"""A mask or an index of one image for every image of a batch: as the mask repeated."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsparse as js
from jaxsparse import nn

SHAPE = (3, 9, 13)


def operands(rng):
    x = jnp.asarray(rng.standard_normal((*SHAPE, 8)), jnp.float32)
    kernel = jnp.asarray(rng.standard_normal((3, 3, 8, 8)) / 9, jnp.float32)
    base = jnp.asarray(rng.standard_normal((*SHAPE, 8)), jnp.float32)
    return x, kernel, base, jnp.asarray(rng.random((1, *SHAPE[1:])) < 0.4)


INDICES = {
    "mask": lambda mask: mask,
    "pixels": lambda mask: js.tile_index(mask, (1, 1)),
    "tiles": lambda mask: js.tile_index(mask, (4, 4), capacity=12),
    "components": lambda mask: js.tile_index(mask, (4, 4), align="component"),
}


@pytest.mark.parametrize("what", INDICES)
def test_values_and_gradients(implementation, rng, what):
    x, kernel, base, mask = operands(rng)
    every = jnp.broadcast_to(mask, SHAPE)

    def run(given, x, kernel, base):
        y = js.masked_conv(x, kernel, given, base=base, implementation=implementation)
        return jnp.where(every[..., None], jnp.sin(y), y).sum(), y

    value = jax.value_and_grad(run, argnums=(1, 2, 3), has_aux=True)
    (_, got), got_grads = jax.jit(value)(INDICES[what](mask), x, kernel, base)
    (_, want), want_grads = value(every, x, kernel, base)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    for mine, theirs in zip(got_grads, want_grads, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)


# Not in the op suite: the mask has another batch than x.
@pytest.mark.parametrize("what", ["mask", "tiles"])
def test_vmap(implementation, rng, what):
    x, kernel, _, mask = operands(rng)
    masks, xs = jnp.stack([mask, ~mask]), jnp.stack([x, -x])
    given = jax.vmap(INDICES[what])(masks)
    got = jax.vmap(lambda m, x: js.masked_conv(x, kernel, m, implementation=implementation))(
        given, xs
    )
    for i in range(2):
        every = jnp.broadcast_to(masks[i], SHAPE)
        want = js.masked_conv(xs[i], kernel, every, implementation=implementation)
        np.testing.assert_allclose(got[i], want, rtol=1e-5, atol=1e-5)


def test_an_overflow_stays_one(implementation, rng):
    x, kernel, base, mask = operands(rng)
    index = js.tile_index(mask, (1, 1), capacity=5, ordered=True)
    got = js.masked_conv(x, kernel, index, base=base, implementation=implementation)
    listed = np.zeros(mask.size, bool)
    listed[np.flatnonzero(mask)[:5]] = True
    every = jnp.broadcast_to(listed.reshape(mask.shape), SHAPE)
    want = js.masked_conv(x, kernel, every, base=base, implementation=implementation)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    with js.checked(), pytest.raises(ValueError, match="capacity of 15"):
        jax.block_until_ready(js.masked_conv(x, kernel, index, implementation=implementation))


def test_no_images_and_no_tiles(implementation, rng):
    x, kernel, _, mask = operands(rng)
    index = js.tile_index(mask, (4, 4))
    for given in (mask, index):
        none = js.masked_conv(x[:0], kernel, given, implementation=implementation)
        assert none.shape == (0, *SHAPE[1:], 8)
    empty = js.tile_index(jnp.zeros_like(mask), (4, 4), capacity=0)
    assert not js.masked_conv(x, kernel, empty, implementation=implementation).any()


def test_tokens_and_stacks(implementation, rng):
    x, kernel, base, mask = operands(rng)
    every = jnp.broadcast_to(mask, SHAPE)
    w = kernel[0, 0]
    dense = [
        js.masked_dense(x, w, m, implementation=implementation)
        for m in (every, mask, mask[:, :, :])
    ]
    np.testing.assert_array_equal(dense[0], dense[1])
    tokens, words = x[:, 0], mask[:, 0]
    want = js.masked_dense(tokens, w, every[:, 0], implementation=implementation)
    for given in (words, js.token_index(words)):
        got = js.masked_dense(tokens, w, given, implementation=implementation)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    stacks = [
        js.masked_conv_stack(x, [kernel] * 2, m, [base] * 2, implementation=implementation)
        for m in (every, mask, js.tile_index(mask, (8, 8)))
    ]
    for got in stacks[1:]:
        for mine, theirs in zip(got, stacks[0], strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


def test_layers(rng):
    x, kernel, _, mask = operands(rng)
    conv = nn.linen.MaskedConv(8, (3, 3), use_bias=False)
    every = jnp.broadcast_to(mask, SHAPE)
    params = {"params": {"kernel": kernel}}
    want = conv.apply(params, x, every)
    for given in (mask, js.tile_index(mask)):
        np.testing.assert_allclose(conv.apply(params, x, given), want, rtol=1e-5, atol=1e-5)
    moe = nn.linen.MoE(num_experts=4, hidden=8)
    variables = moe.init(jax.random.key(0), x)
    got = [moe.apply(variables, x, given) for given in (mask, every)]
    for mine, theirs in zip(*map(jax.tree.leaves, got), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)
