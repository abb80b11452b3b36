"""Axes that no mesh splits: gathered with a warning on Auto axes, refused on Explicit ones, in the
user's words; values and gradients are those of one device.
"""

import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxsparse as js

pytestmark = pytest.mark.skipif(len(jax.devices()) < 4, reason="needs four devices")
RNG = np.random.default_rng(0)
FIRST, SECOND = P("s"), P(None, "s")


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


X, MASK = normal(4, 8, 8, 4), RNG.random((4, 8, 8)) < 0.5
ROWS, WEIGHT = normal(2, 4, 16), normal(16, 8)
BLOCKS = RNG.random((2, 4, 4, 2)) < 0.5
PRUNED = js.pruned.inspect(WEIGHT * (RNG.random(WEIGHT.shape) < 0.5))
#: The call, its operands, how they are split, and what is said of the first that is gathered.
CASES = {
    "pack_tokens": (
        lambda x, m: js.unpack_tokens(*js.pack_tokens(x, m)),
        (normal(4, 8, 2), RNG.random((4, 8)) < 0.5),
        FIRST,
        r"(pack_tokens: )?(mask axis 0|x) is sharded .* tokens of all sequences lie side by side",
    ),
    # Of windows that are split XLA's own gradient is wrong.
    "masked_pool": (
        lambda x, m: js.masked_pool(x, m, (2, 2)),
        (X, MASK),
        SECOND,
        r"masked_pool: mask axis 1 is sharded .* a window reads pixels around its own",
    ),
    "masked_norm": (
        lambda x, m: js.masked_norm(x, m, kind="layer"),
        (X, MASK),
        P(None, None, "s"),
        r"masked_norm: mask axis 2 is sharded .* the axes behind the first are joined",
    ),
    "sparse_ffn": (
        lambda x: js.sparse_ffn(x, WEIGHT, WEIGHT.T),
        (ROWS,),
        SECOND,
        r"sparse_ffn: x axis 1 is sharded .* splits the first alone",
    ),
    "masked_matmul": (
        lambda a, m: js.masked_matmul(a, WEIGHT, a_mask=m, granularity=(4, 8)),
        (normal(2, 4, 16, 16), BLOCKS),
        SECOND,
        r"masked_matmul: a axis 1 is sharded .* splits the first alone",
    ),
    "masked_dense": (
        lambda x, m: js.masked_dense(x, WEIGHT, m),
        (normal(2, 4, 8, 16), RNG.random((2, 4, 8)) < 0.5),
        SECOND,
        r"masked_dense: x axis 1 is sharded .* splits the first alone",
    ),
    "pruned_matmul": (
        lambda x: js.pruned_matmul(x, PRUNED),
        (ROWS,),
        SECOND,
        r"pruned_matmul: x axis 1 is sharded .* splits the first alone",
    ),
    "pack_mask": (
        js.pack_mask,
        (MASK,),
        SECOND,
        r"pack_mask: mask axis 1 is sharded .* splits the first alone",
    ),
    "BlockMask": (
        lambda m: js.BlockMask.from_dense(m, (16, 16)).to_dense(),
        (RNG.random((4, 1, 32, 32)) < 0.5,),
        FIRST,
        r"(BlockMask: )?mask (axis 0 )?is sharded .* blocks of all masks are numbered together",
    ),
}


def over(kind, spec, *values):
    mesh = jax.make_mesh((4,), ("s",), (kind,), devices=jax.devices()[:4])
    return [jax.device_put(value, NamedSharding(mesh, spec)) for value in values]


@pytest.mark.parametrize("name", CASES)
def test_said_and_right(name):
    call, operands, spec, words = CASES[name]

    def run(*operands):
        if operands[0].dtype != np.float32:
            return call(*operands)
        return jax.value_and_grad(lambda x: jnp.sum(jnp.sin(call(x, *operands[1:]))))(operands[0])

    with pytest.raises(ValueError, match=f"^{words}"):
        call(*over(AxisType.Explicit, spec, *operands))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        got = jax.jit(run)(*over(AxisType.Auto, spec, *operands))
    assert {w.category for w in told} == {RuntimeWarning}
    assert any(re.match(words, str(w.message)) for w in told)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(run(*operands)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=["auto", "explicit"])
def test_what_is_split_without_a_gather(kind):
    """The chosen activations of a top-k in a gradient, a mapped pool, and blocks without bits."""

    def run(x, images, mask, bits, q):
        y = js.sparse_ffn(x, WEIGHT, WEIGHT.T, w_gate=WEIGHT, top_k=3)
        blocks = js.BlockMask.from_block_bits(bits, (16, 16), 32, 32)
        pooled = js.masked_pool(images, mask, (2, 2))
        attended = js.sparse_attention(q, q, q, blocks)
        # Divided by about the size of y: the sine of a large number has its rounding errors.
        return sum(jnp.sum(jnp.sin(v / 64)) for v in (y, pooled, attended))

    operands = normal(4, 3, 16), X, MASK, RNG.random((4, 1, 2, 2)) < 0.5, normal(4, 32, 2, 16)
    step = jax.jit(jax.grad(run, (0, 1, 4)))
    split = over(kind, FIRST, *operands)
    compiled = step.lower(*split).compile()
    assert "all-gather" not in compiled.as_text()
    for got, want, given in zip(
        compiled(*split), step(*operands), split[:2] + split[4:], strict=True
    ):
        assert got.sharding.is_equivalent_to(given.sharding, got.ndim)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_under_vmap():
    """The axis that is mapped over may be split; the images of each entry may not."""
    pool = jax.jit(jax.vmap(lambda x, m: js.masked_pool(x, m, (2, 2))))
    x, mask = X[:, None], MASK[:, None]
    assert "all-gather" not in pool.lower(*over(AxisType.Auto, FIRST, x, mask)).compile().as_text()
    rows = over(AxisType.Auto, P(None, None, "s"), x, mask)
    with pytest.warns(
        RuntimeWarning, match=r"masked_pool: \w+ axis -[23] .* a window reads pixels"
    ):
        got = pool(*rows)
    np.testing.assert_array_equal(got, pool(x, mask))
