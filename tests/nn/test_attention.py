"""The attention layers against flax's own with the dense mask: values, gradients, parameters of
either in the other, a cache of keys, and errors.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

import jaxsparse as js

B, T, D, HEADS = 2, 40, 16, 4
X = jnp.asarray(np.random.default_rng(0).standard_normal((B, T, D)), jnp.float32)
Y = jnp.asarray(np.random.default_rng(1).standard_normal((B, 24, D)), jnp.float32)
MASK = js.block_masks.sliding_window(T, None, 16, left=9)
CROSS = js.BlockMask.from_dense(np.random.default_rng(2).random((B, HEADS, T, 24)) < 0.6, (16, 32))
LINEN = js.nn.linen.SparseAttention(HEADS, precision="highest")
FLAX = linen.MultiHeadDotProductAttention(HEADS, precision="highest")
CLOSE = {"rtol": 2e-4, "atol": 2e-5}


@pytest.fixture(autouse=True, scope="module")
def in_float32():
    """flax.nnx hands `precision` to its projections alone: a GPU's attention would be in TF32."""
    with jax.default_matmul_precision("highest"):
        yield


def nnx_pair(**options):
    """Ours and flax's, with the same parameters."""
    options = {"decode": False, "precision": "highest", **options}
    ours = js.nn.nnx.SparseAttention(HEADS, D, rngs=nnx.Rngs(0), **options)
    flax = nnx.MultiHeadAttention(HEADS, D, rngs=nnx.Rngs(1), **options)
    nnx.update(ours, nnx.state(flax, nnx.Param))
    return ours, flax


def dense(mask):
    return jnp.broadcast_to(mask.to_dense(), (B, *mask.to_dense().shape[1:]))


@pytest.mark.parametrize("inputs", [(X,), (X, Y)], ids=["self", "cross"])
def test_linen(inputs, implementation):
    mask = MASK if len(inputs) == 1 else CROSS
    layer = LINEN.clone(implementation=implementation)
    variables = FLAX.init(jax.random.key(0), *inputs)
    assert jax.tree.structure(variables) == jax.tree.structure(
        layer.init(jax.random.key(0), *inputs, mask=mask)
    )

    def loss(variables, apply):
        out = apply(variables)
        return (out**2).sum(), out

    run = jax.jit(jax.value_and_grad(loss, has_aux=True), static_argnums=1)
    (_, got), slope = run(variables, lambda v: layer.apply(v, *inputs, mask=mask))
    (_, want), expected = run(variables, lambda v: FLAX.apply(v, *inputs, mask=dense(mask)))
    np.testing.assert_allclose(got, want, **CLOSE)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3), slope, expected
    )


@pytest.mark.parametrize(
    "options", [{}, {"num_kv_heads": 2}, {"normalize_qk": True, "use_bias": False}], ids=str
)
def test_nnx(options):
    ours, flax = nnx_pair(**options)
    got = nnx.jit(lambda m, x, mask: m(x, mask=mask))(ours, X, MASK)
    np.testing.assert_allclose(got, flax(X, mask=dense(MASK)), **CLOSE)
    if not options:
        np.testing.assert_allclose(
            ours(X, Y, mask=CROSS), flax(X, Y, mask=CROSS.to_dense()), **CLOSE
        )
        everything = js.BlockMask.from_dense(np.ones((1, 1, T, T), bool), 16)
        want = flax(X, mask=linen.make_causal_mask(X[..., 0]))
        np.testing.assert_allclose(ours(X, mask=everything, is_causal=True), want, **CLOSE)
        np.testing.assert_allclose(ours(X), flax(X), **CLOSE)
        back = nnx.MultiHeadAttention(HEADS, D, rngs=nnx.Rngs(2), decode=False)
        nnx.update(back, nnx.state(ours, nnx.Param))
        np.testing.assert_allclose(back(X), flax(X), **CLOSE)


def test_other_batches():
    ours, flax = nnx_pair()
    many = jnp.stack([X, 2 * X])
    np.testing.assert_allclose(
        ours(many, mask=MASK), flax(many, mask=MASK.to_dense()[None]), **CLOSE
    )
    np.testing.assert_allclose(ours(X[0], mask=MASK), flax(X[0], mask=MASK.to_dense()[0]), **CLOSE)


@pytest.mark.parametrize("causal", [True, False])
def test_a_cache_gives_what_the_whole_sequence_does(causal):
    """Token by token; what is not causal in the mask is left out, as there is no such key yet."""
    mask = MASK if causal else js.block_masks.sliding_window(T, None, 16, left=9, right=7)
    ours, flax = nnx_pair()
    want = flax(X, mask=dense(MASK))
    ours.init_cache(X.shape)
    step = nnx.jit(lambda m, x, mask: m(x, mask=mask, decode=True))
    for t in range(12):
        np.testing.assert_allclose(step(ours, X[:, t : t + 1], mask)[:, 0], want[:, t], **CLOSE)
    one = js.block_masks.sliding_window(1, T, 16, left=9, offset=12)
    np.testing.assert_allclose(step(ours, X[:, 12:13], one)[:, 0], want[:, 12], **CLOSE)
    assert int(ours.cache_index[...]) == 13


def test_a_cache_of_linen():
    variables = FLAX.init(jax.random.key(0), X)
    want = FLAX.apply(variables, X, mask=dense(MASK))
    layer = LINEN.clone(decode=True)
    cache = layer.init(jax.random.key(1), X, mask=MASK)["cache"]
    assert jax.tree.map(jnp.shape, cache) == jax.tree.map(
        jnp.shape, FLAX.clone(decode=True).init(jax.random.key(1), X)["cache"]
    )
    step = jax.jit(
        lambda c, x: layer.apply({**variables, "cache": c}, x, mask=MASK, mutable="cache")
    )
    for t in range(3):
        got, changed = step(cache, X[:, t : t + 1])
        cache = changed["cache"]
        np.testing.assert_allclose(got[:, 0], want[:, t], **CLOSE)


@pytest.mark.parametrize("kind", ["linen", "nnx"])
def test_the_function_for_flax_layers(kind):
    attention_fn = js.nn.sparse_attention_fn(MASK)
    there = jnp.arange(T) < jnp.array([[9], [33]])
    lengths = linen.make_attention_mask(jnp.ones((B, T), bool), there)  # float32
    both = dense(MASK) & (lengths != 0)
    if kind == "linen":
        variables = FLAX.init(jax.random.key(0), X)
        plain = lambda **o: FLAX.apply(variables, X, **o)  # noqa: E731
        sparse = lambda **o: FLAX.clone(attention_fn=attention_fn).apply(variables, X, **o)  # noqa: E731
    else:
        _, plain = nnx_pair()
        plain, sparse = (lambda f, g: (lambda **o: f(X, **o), lambda **o: g(X, **o)))(
            plain, with_function(plain, attention_fn)
        )
    np.testing.assert_allclose(sparse(), plain(mask=dense(MASK)), **CLOSE)
    kept = np.asarray(both.any((1, 3)))[..., None]
    np.testing.assert_allclose(
        np.where(kept, sparse(mask=lengths), 0), np.where(kept, plain(mask=both), 0), **CLOSE
    )
    with pytest.raises(ValueError, match="sow_weights"):
        sparse(sow_weights=True)


def with_function(layer, attention_fn):
    made = nnx.MultiHeadAttention(
        HEADS, D, rngs=nnx.Rngs(0), decode=False, precision="highest", attention_fn=attention_fn
    )
    nnx.update(made, nnx.state(layer, nnx.Param))
    return made


def test_errors():
    ours, _ = nnx_pair()
    variables = LINEN.init(jax.random.key(0), X)
    for layer in (ours, lambda *a, **k: LINEN.apply(variables, *a, **k)):
        with pytest.raises(TypeError, match="mask must be a BlockMask, not ndarray"):
            layer(X, mask=np.ones((B, 1, T, T), bool))
        with pytest.raises(ValueError, match="inputs_v needs inputs_k"):
            layer(X, None, X, mask=MASK)
        with pytest.raises(TypeError, match="inputs_q must be an array"):
            layer([1.0], mask=MASK)
        with pytest.raises(ValueError, match="40"):
            layer(X[:, :7], mask=MASK)
    with pytest.raises(ValueError, match="inputs_q has shape"):
        ours(X[..., :3], mask=MASK)
    with pytest.raises(ValueError, match="init_cache first"):
        ours(X[:, :1], mask=MASK, decode=True)
    ours.init_cache((B, 24, D))
    with pytest.raises(ValueError, match="a cache of 24 keys needs kv_len=24"):
        ours(X[:, :1], mask=MASK, decode=True)
    with pytest.raises(ValueError, match="the cache takes a key of shape"):
        ours(X, mask=MASK, decode=True)
    for make in (
        lambda **o: js.nn.linen.SparseAttention(HEADS, **o),
        lambda **o: js.nn.nnx.SparseAttention(HEADS, D, rngs=nnx.Rngs(0), **o),
    ):
        with pytest.raises(ValueError, match=r"dropout_rate=0\.1"):
            make(dropout_rate=0.1)
        with pytest.raises(ValueError, match="'tpu'"):
            make(implementation="tpu")
    with pytest.raises(TypeError, match="block_mask must be a BlockMask"):
        js.nn.sparse_attention_fn(np.ones((T, T), bool))
    with pytest.raises(ValueError, match="dropout_rate"):
        js.nn.sparse_attention_fn(MASK)(X, X, X, dropout_rate=0.5)
