"""A batch that is a symbol in `jax.export`: exported once, called with several sizes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from jax import export

import jaxsparse as js

RNG = np.random.default_rng(0)
#: Pieces and wholes may take different variants, which on a GPU round to TF32.
LIMIT = 1e-4 if jax.default_backend() == "cpu" else 2e-2
KERNEL = jnp.asarray(RNG.standard_normal((3, 3, 4, 8)), jnp.float32)
W = jnp.asarray(RNG.standard_normal((4, 8)), jnp.float32)
GROUPS = jnp.asarray(RNG.standard_normal((3, 4, 8)), jnp.float32)
PRUNED = js.pruned.inspect(np.asarray(W) * (RNG.random((4, 8)) < 0.5))
PRUNED_CONV = js.pruned.inspect(np.asarray(KERNEL) * (RNG.random(KERNEL.shape) < 0.5), kind="conv")
LAYERS = [
    js.bounded.inspect(sp.random(4, 4, 0.6, random_state=i, dtype=np.float32), -0.1, 1.0)
    for i in (0, 1)
]
NETWORK = js.bounded.network(LAYERS)


def bounded(x):
    """Activations from piece to piece, with their codes."""
    return js.bounded_matmul(js.bounded_matmul(x, LAYERS[0]), LAYERS[1]).materialize()


def recorded(x, mask):
    options = {"activation": "relu6", "record": True}
    y, recorder = js.masked_conv(x, KERNEL, mask, **options)
    return js.masked_conv(y, jnp.swapaxes(KERNEL, 2, 3), mask, recorder=recorder), recorder.codes


#: Name -> (function, shapes behind the batch, dtypes).
CASES = {
    "masked_conv": (
        lambda x, mask, base: js.masked_conv(x, KERNEL, mask, base=base, strides=1),
        [((9, 7, 4), "f4"), ((9, 7), "?"), ((9, 7, 8), "f4")],
    ),
    "masked_conv, one mask": (
        lambda x: js.masked_conv(x, KERNEL, jnp.eye(9, 7, dtype=bool)[None]),
        [((9, 7, 4), "f4")],
    ),
    "masked_conv, recorded": (recorded, [((9, 7, 4), "f4"), ((9, 7), "?")]),
    "masked_dense": (lambda x, mask: js.masked_dense(x, W, mask), [((4,), "f4"), ((), "?")]),
    "masked_dense, sequences": (
        lambda x, mask: js.masked_dense(x, W, mask, activation="gelu"),
        [((5, 4), "f4"), ((5,), "?")],
    ),
    "sparse_ffn": (lambda x: js.sparse_ffn(x, W, W.T, w_gate=-W, top_k=2), [((4,), "f4")]),
    "pruned_matmul": (lambda x: js.pruned_matmul(x, PRUNED), [((4,), "f4")]),
    "pruned_conv": (lambda x: js.pruned_conv(x, PRUNED_CONV), [((9, 7, 4), "f4")]),
    "bounded_matmul": (bounded, [((4,), "f4")]),
    "bounded.network": (lambda x: NETWORK(x).materialize(), [((4,), "f4")]),
    "grouped_matmul": (
        lambda x: js.grouped_matmul(x, GROUPS, jnp.asarray([2, -3, 2**31 - 1])),
        [((4,), "f4")],
    ),
    "grouped_matmul, weighted": (
        lambda x, weights: js.grouped_matmul(
            x, GROUPS, jnp.asarray([1, 0, 1]), row_weights=weights
        ),
        [((4,), "f4"), ((), "f4")],
    ),
}


def drawn(shape, dtype):
    if dtype == "?":
        return jnp.asarray(RNG.random(shape) < 0.5)
    return jnp.asarray(RNG.standard_normal(shape), jnp.float32)


def exported(function, shapes):
    (batch,) = export.symbolic_shape("batch")
    types = [jax.ShapeDtypeStruct((batch, *shape), np.dtype(dtype)) for shape, dtype in shapes]
    made = export.export(jax.jit(function), disabled_checks=js.DISABLE_JAX_EXPORT_CHECKS)(*types)
    return export.deserialize(made.serialize())


@pytest.mark.parametrize("name", CASES)
def test_one_export_for_every_batch(name):
    function, shapes = CASES[name]
    call = exported(function, shapes).call
    for batch in (1, 3, 70):
        args = [drawn((batch, *shape), dtype) for shape, dtype in shapes]
        for got, want in zip(
            jax.tree.leaves(call(*args)), jax.tree.leaves(function(*args)), strict=True
        ):
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=LIMIT, atol=LIMIT)


def test_groups_over_several_pieces():
    rows = 4096 + 50
    sizes = jnp.asarray([4000, 120, 20])  # the second stands in two pieces, and 6 rows in none
    x = drawn((rows, 4), "f4")
    call = exported(lambda x: js.grouped_matmul(x, GROUPS, sizes), [((4,), "f4")]).call
    np.testing.assert_allclose(call(x), js.grouped_matmul(x, GROUPS, sizes), rtol=LIMIT, atol=LIMIT)


def test_gradients():
    mask, x = jnp.asarray(RNG.random((11, 9, 7)) < 0.5), drawn((11, 9, 7, 4), "f4")

    def loss(x, mask, kernel):
        return (js.masked_conv(x, kernel, mask) ** 2).sum()

    (batch,) = export.symbolic_shape("batch")
    types = [
        jax.ShapeDtypeStruct((batch, *x.shape[1:]), x.dtype),
        jax.ShapeDtypeStruct((batch, *mask.shape[1:]), mask.dtype),
        jax.ShapeDtypeStruct(KERNEL.shape, KERNEL.dtype),
    ]
    slopes = jax.jit(jax.grad(loss, (0, 2)))
    call = export.export(slopes, disabled_checks=js.DISABLE_JAX_EXPORT_CHECKS)(*types).call
    for got, want in zip(call(x, mask, KERNEL), slopes(x, mask, KERNEL), strict=True):
        np.testing.assert_allclose(got, want, rtol=10 * LIMIT, atol=10 * LIMIT)


def refused(function, *shapes):
    (batch, other) = export.symbolic_shape("batch, other")
    named = {"b": batch, "o": other}
    types = [
        jax.ShapeDtypeStruct(tuple(named.get(n, n) for n in shape), dtype)
        for shape, dtype in shapes
    ]
    export.export(jax.jit(function))(*types)


WRONG = {
    "height": (
        lambda x: js.masked_conv(x, KERNEL, jnp.ones((1, 8, 8), bool)),
        [(("b", "o", 8, 4), jnp.float32)],
        r"^x has shape \[batch, other, 8, 4\]: only the first axis may be a symbol, because the",
    ),
    "base": (
        lambda x, y: js.masked_conv(x, KERNEL, jnp.ones((1, 8, 8), bool), base=y),
        [(("b", 8, 8, 4), jnp.float32), (("o", 8, 8, 8), jnp.float32)],
        r"^base has shape \[other, 8, 8, 8\]; x has a first axis of batch",
    ),
    "index": (
        lambda x: js.masked_conv(x, KERNEL, js.tile_index(jnp.ones((1, 8, 8), bool))),
        [(("b", 8, 8, 4), jnp.float32)],
        r"^x has shape \[batch, 8, 8, 4\] and mask is a TileIndex, whose size is static",
    ),
    "tokens": (
        lambda x: js.masked_dense(x, W, js.token_index(jnp.ones(8, bool))),
        [(("b", 4), jnp.float32)],
        r"^x has shape \[batch, 4\] and mask is a TileIndex",
    ),
    "gather": (
        lambda x: js.grouped_matmul(x, GROUPS, jnp.ones(3, int), gather=jnp.zeros(3, int)),
        [(("b", 4), jnp.float32)],
        r"^lhs has shape \[batch, 4\] and gather is given",
    ),
    "depth": (
        lambda x: js.pruned_matmul(x, PRUNED),
        [(("b", "o"), jnp.float32)],
        r"^x has shape \[batch, other\]: only the first axis may be a symbol",
    ),
    "acts": (
        lambda x: js.bounded_matmul(x, LAYERS[0]),
        [((8, "o"), jnp.float32)],
        r"^acts has shape \[8, other\]: only the first axis may be a symbol",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_symbols_in_other_places(name):
    function, shapes, words = WRONG[name]
    with pytest.raises(ValueError, match=words):
        refused(function, *shapes)
