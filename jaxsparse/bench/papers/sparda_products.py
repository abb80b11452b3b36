"""SparDA's matrix products: one case for each block size, the time of the index included."""

import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsparse.bench.papers.exhibit import Figure, Setting, speedups
from jaxsparse.bench.products import masked_matmul as masked
from jaxsparse.bench.products.run import Comparison, element_type, normal, precision
from jaxsparse.index import tile_index
from jaxsparse.ops import masked_matmul
from jaxsparse.testing.product_cases import MatmulCase

BLOCKS = ((32, 64), (32, 1), (1, 64), (1, 1))
SPARSITIES = (0.5, 0.8, 0.9, 0.95, 0.99)
SMALL = (0.9, 0.99)


def figure_9(setting: Setting) -> Iterator[Figure]:
    """4096x4096x4096 under masks of four block sizes, multiplied in float32."""
    return _products(setting, setting.dtype)


def figure_10(setting: Setting) -> Iterator[Figure]:
    """The same on tensor cores."""
    if setting.gpu:
        yield from _products(setting, "bfloat16")
    else:
        yield Figure("all blocks", "", "a CPU has no tensor cores")


def _products(setting: Setting, dtype: str) -> Iterator[Figure]:
    size = 4096 if setting.full and setting.gpu else 1024
    for block in BLOCKS:
        case = MatmulCase(f"blocks of {block[0]}x{block[1]}, {dtype}", size, size, size, block)
        shares = SPARSITIES if setting.full else SMALL
        yield from speedups(masked.comparisons(case, dtype, setting.plan, shares), setting)


def figure_8(setting: Setting) -> Iterator[Figure]:
    """A layer of BERT's feed-forward part in training: its result, and both gradients."""
    rows, inner, outer = 4096 if setting.full else 512, 768, 3072
    for block in ((32, 64), (32, 1)):
        for sparsity in (0.5, 0.8, 0.9, 0.95, 0.98) if setting.full else (0.9,):
            case = MatmulCase(f"blocks of {block[0]}x{block[1]}", rows, inner, outer, block, "b")
            yield from speedups([_training(case, sparsity, setting)], setting, memory=True)


def _training(case: MatmulCase, sparsity: float, setting: Setting) -> Comparison:
    kind, exactness = element_type(setting.dtype), precision(setting.dtype)
    masks = [jnp.asarray(case.mask(sparsity, seed)) for seed in range(setting.plan.calls)]
    operands = {
        "w": normal((case.k, case.n), kind, 1, 1 / math.sqrt(case.k)),
        "masks": tuple(masks),
    }

    def step(product: Any, x: jax.Array, w: jax.Array) -> jax.Array:
        def loss(x: jax.Array, w: jax.Array) -> jax.Array:
            return jnp.sin(product(x, w)).sum()

        return jnp.concatenate([g.reshape(-1) for g in jax.grad(loss, (0, 1))(x, w)])

    def dense(i: int, x: jax.Array, operands: Any) -> jax.Array:
        mask = operands["masks"][i]
        return step(lambda x, w: masked.multiplied(case, x, w, mask, exactness), x, operands["w"])

    def ours(i: int, x: jax.Array, operands: Any) -> jax.Array:
        def product(x: jax.Array, w: jax.Array) -> jax.Array:
            return masked_matmul(
                x, w, b_mask=operands["masks"][i], granularity=case.block, precision=exactness
            )

        return step(product, x, operands["w"])

    def want(x: jax.Array, mask: jax.Array, operands: Any) -> jax.Array:
        highest = jax.lax.Precision.HIGHEST
        return step(lambda x, w: masked.multiplied(case, x, w, mask, highest), x, operands["w"])

    return Comparison(
        masked.OP,
        case.name,
        f"forward + backward, {100 * sparsity:g} % of the blocks unset",
        setting.dtype,
        lambda seed: normal((case.m, case.k), kind, 10 + seed),
        want,
        operands,
        masks,
        {masked.MULTIPLIED: dense, "jaxsparse": ours},
    )


def figure_11(setting: Setting) -> Iterator[Figure]:
    """The list of the active blocks of a matrix, from its mask of elements."""
    size = 4096 if setting.full else 512
    for tile in ((1, 1), (16, 16), (32, 32)):
        for sparsity in (0.5, 0.9, 0.99) if setting.full else (0.9,):
            one = _listing(size, tile, sparsity, setting)
            yield from speedups([one], setting, lambda c: FIGURE_11[c.case.split()[-1]])


#: What Figure 11 reports: times faster than the library named.
FIGURE_11 = {
    "1x1": "1.9x to 2.4x cuSPARSE",
    "16x16": "11.2x to 14.2x Triton",
    "32x32": "13.3x to 26.5x Triton",
}


def _listing(size: int, tile: tuple[int, int], sparsity: float, setting: Setting) -> Comparison:
    """Both sides return the length of the list and the sum of its entries, which check it."""
    grid = size // tile[0], size // tile[1]
    count = grid[0] * grid[1]

    def draw(seed: int) -> jax.Array:
        """A matrix of zeros and ones; whole blocks are zero, as in the paper."""
        kept = np.random.default_rng(seed).random(grid) >= sparsity
        return jnp.asarray(np.kron(kept, np.ones(tile)), jnp.float32)

    def digest(ids: jax.Array, length: jax.Array) -> jax.Array:
        listed = jnp.arange(count) < length
        total = jnp.where(listed, ids, 0).astype(jnp.float32) / count
        return jnp.stack([length.astype(jnp.float32), total.sum()])

    def nonzero(i: int, x: jax.Array, operands: Any) -> jax.Array:
        blocks = (x != 0).reshape(grid[0], tile[0], grid[1], tile[1]).any((1, 3)).reshape(-1)
        (ids,) = jnp.nonzero(blocks, size=count, fill_value=0)
        return digest(ids, blocks.sum(dtype=jnp.int32))

    def ours(i: int, x: jax.Array, operands: Any) -> jax.Array:
        index = tile_index(x[None] != 0, tile)
        return digest(index.ids, index.count)

    return Comparison(
        "tile_index",
        f"{size}x{size}, blocks of {tile[0]}x{tile[1]}",
        f"{100 * sparsity:g} % of the blocks unset",
        "float32",
        draw,
        lambda x, own, operands: nonzero(0, x, operands),
        None,
        [None] * setting.plan.calls,
        {"jnp.nonzero": nonzero, "jaxsparse": ours},
    )
