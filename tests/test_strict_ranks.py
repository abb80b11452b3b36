"""Every op and its gradient where JAX refuses to promote ranks (`jax_numpy_rank_promotion`)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsparse as js

pytest.importorskip("flax")


@pytest.fixture(autouse=True)
def strict():
    with jax.numpy_rank_promotion("raise"):
        yield


def normal(rng, *shape):
    return jnp.asarray(rng.standard_normal(shape), jnp.float32)


def sparse(rng, *shape):
    return np.where(rng.random(shape) < 0.2, rng.standard_normal(shape), 0).astype(np.float32)


def convolution(rng, how):
    mask = jnp.asarray(rng.random((2, 12, 12)) < 0.4)
    shapes = (2, 12, 12, 8), (3, 3, 8, 8), (8,), (2, 12, 12, 8)

    def call(x, kernel, bias, base):
        return js.masked_conv(x, kernel, mask, bias=bias, base=base, activation="gelu", **how)

    return call, [normal(rng, *s) for s in shapes]


def recorded(rng, how):
    mask = jnp.ones((2, 12, 12), bool)

    def call(x, kernel):
        y, known = js.masked_conv(x, kernel, mask, activation="relu6", record=True, **how)
        return js.masked_conv(y, kernel, mask, recorder=known, **how)

    return call, [normal(rng, 2, 12, 12, 8), normal(rng, 3, 3, 8, 8)]


def stack(rng, how):
    mask = jnp.asarray(rng.random((2, 12, 12)) < 0.4)

    def call(x, k1, k2, b1, b2):
        return js.masked_conv_stack(x, [k1, k2], mask, [b1, b2], biases=[k1[0, 0, 0], None], **how)

    image, kernel = (2, 12, 12, 8), (3, 3, 8, 8)
    return call, [normal(rng, *s) for s in (image, kernel, kernel, image, image)]


def indices(rng, how):
    mask = jnp.asarray(rng.random((2, 12, 20)) < 0.4)

    def call(x):
        found = [js.tile_index(mask, (4, 4), align=a, **how) for a in ("grid", "component")]
        found += js.affected_index(mask, [[(3, 1)], [(3, 2)]], (4, 4), **how)
        costs = jnp.asarray([[3.0, 1.0, 0.0], [9.0, 0.0, -1.0]])
        found += js.index.portfolio_index(mask, ((4, 4), (2, 4)), costs, **how).indices
        seen = sum(index.to_mask().sum() for index in found)
        words = js.pack_mask(mask, **how)
        return x * (seen + js.unpack_mask(words, 20).sum()).astype(jnp.float32)

    return call, [normal(rng, 3)]


def blocks(rng, how):
    masks = {
        f"{n}_mask": jnp.asarray(rng.random(s) < 0.5) for n, s in (("a", (5, 6)), ("b", (6, 7)))
    }

    def call(a, b):
        y = js.masked_matmul(a, b, granularity=(8, 8), **masks, **how)
        lengths = js.lengths_mask(jnp.asarray([3, 48] * 20), 48)
        return y + js.masked_matmul(a, b, a_mask=lengths, granularity=(1, 1), **how)

    return call, [normal(rng, 40, 48), normal(rng, 48, 56)]


def attention(rng, how):
    mask = js.BlockMask.from_dense(rng.random((2, 1, 40, 48)) < 0.5, 16)
    mask &= js.create_block_mask(lambda b, h, i, j: i + 16 >= j, 1, 1, 40, 48, 16)
    bias, slopes = normal(rng, 1, 4, 40, 48), normal(rng, 4)

    def call(q, k, v):
        more = {"bias": bias, "slopes": slopes, "soft_cap": 3.0, **how}
        out, lse = js.sparse_attention(q, k, v, mask, return_lse=True, **more)
        return out + lse.swapaxes(1, 2)[..., None]

    return call, [normal(rng, 2, n, h, 8) for n, h in ((40, 4), (48, 2), (48, 2))]


def tokens(rng, how):
    mask = jnp.asarray(rng.random((3, 7)) < 0.5)

    def call(x, w, bias):
        return js.masked_dense(x, w, mask, bias=bias, activation="relu", **how)

    return call, [normal(rng, 3, 7, 48), normal(rng, 48, 16), normal(rng, 16)]


def groups(rng, how):
    ids = jnp.asarray(rng.integers(0, 3, (9, 2)), jnp.int32)

    def call(lhs, rhs, weights):
        to = js.route(ids, 3, **how)
        rows = {"gather": to.gather, "scatter": to.scatter, "num_rows": 9}
        weights = weights.reshape(-1)[to.order]
        return js.grouped_matmul(lhs, rhs, to.group_sizes, row_weights=weights, **rows, **how)

    return call, [normal(rng, 9, 16), normal(rng, 3, 16, 8), normal(rng, 9, 2)]


def frozen(rng, how):
    product = js.pruned.inspect(sparse(rng, 48, 56))
    kernel = js.pruned.inspect(sparse(rng, 3, 3, 8, 16), kind="conv")

    def call(x, values, bias, image, taps, shift):
        y = js.pruned_matmul(x, product.with_values(values), bias=bias, activation="silu", **how)
        z = js.pruned_conv(image, kernel.with_values(taps), bias=shift, **how)
        return y.sum() + z.sum()

    arrays = normal(rng, 5, 48), jnp.asarray(product.values), normal(rng, 56)
    return call, [*arrays, normal(rng, 2, 9, 9, 8), jnp.asarray(kernel.values), normal(rng, 16)]


def saturated(rng, how):
    layers = [js.bounded.inspect(sparse(rng, 48, 56), 0.1, 2.0)]
    layers.append(js.bounded.inspect(sparse(rng, 56, 20), rng.standard_normal(20), 2.0))

    def call(x):
        acts = js.bounded_matmul(js.bounded_matmul(x, layers[0], **how), layers[1], **how)
        return acts.materialize() + js.bounded.network(layers, **how)(x).materialize()

    return call, [normal(rng, 5, 48)]


CASES = (
    convolution,
    recorded,
    stack,
    indices,
    blocks,
    attention,
    tokens,
    groups,
    frozen,
    saturated,
)


@pytest.mark.parametrize("case", CASES)
def test_ops_and_gradients(implementation, rng, case):
    call, args = case(rng, {"implementation": implementation})

    def total(*args):
        return sum(jnp.sum(leaf) for leaf in jax.tree.leaves(call(*args)))

    for got in (total(*args), *jax.grad(total, tuple(range(len(args))))(*args)):
        assert bool(jnp.isfinite(got).all())


def test_converged(implementation, rng):
    layers = [js.bounded.inspect(sparse(rng, 48, 48), 0.1, 2.0) for _ in range(3)]
    run = js.bounded.converged(layers, threshold=1, implementation=implementation)
    assert run(normal(rng, 5, 48)).materialize().shape == (5, 48)


@pytest.mark.parametrize("activation", ["relu", "swiglu"])
@pytest.mark.parametrize("routing", ["top_k", "expert_choice"])
def test_layers(rng, activation, routing):
    x, mask = normal(rng, 3, 7, 48), jnp.asarray(rng.random((3, 7)) < 0.5)
    linen = js.nn.linen
    frozen = js.pruned.inspect(sparse(rng, 48, 56))
    layers = [
        (linen.MoE(4, 8, top_k=2, activation=activation, routing=routing), (x, mask)),
        (linen.MaskedDense(8), (x, mask)),
        (linen.MaskedConv(8, (3, 3)), (x[None], mask[None])),
        (linen.PrunedDense(56, pruned=frozen), (x,)),
    ]
    for layer, args in layers:
        params = layer.init(jax.random.key(0), *args)
        assert jax.tree.leaves(layer.apply(params, *args))[0].shape[-2] == 7
