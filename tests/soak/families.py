"""Programs of every family of operations, with shapes, masks, patterns and plans drawn from seeds.
`PLAIN` has programs of JAX's own operations, of the same kinds and sizes: memory that they leave
behind is XLA's.
"""

import dataclasses
import itertools
import math
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

import jaxsparse as js

Seed = tuple[int, ...]
Option = TypeVar("Option")


@dataclasses.dataclass(frozen=True)
class Program:
    """A function to compile.

    Attributes:
        run: of the operands; it holds frozen weights as constants.
        operands: numpy arrays, those with a derivative first.
        moving: how many operands have a derivative.
        frozen: references to what must be freed with the function.
    """

    run: Callable[..., Any]
    operands: tuple[np.ndarray, ...]
    moving: int = 0
    frozen: tuple[weakref.ref[Any], ...] = ()

    def gradient(self) -> Callable[..., Any]:
        """The function's gradient, of the sum of the result's floats."""

        def total(*operands: Any) -> jax.Array:
            leaves = jax.tree.leaves(self.run(*operands))
            return sum((v.sum() for v in leaves if v.dtype == jnp.float32), start=jnp.float32(0))

        return jax.grad(total, tuple(range(self.moving)))


class Sizes:
    """Draws the sizes of a program from one seed, and its arrays from another.

    Args:
        sizes: equal seeds give equal shapes, and equal patterns of frozen weights and saturated
            layers, because the shapes of packed weights depend on their pattern.
        values: equal seeds give equal arrays and masks, if the shapes are equal.
    """

    def __init__(self, sizes: Seed, values: Seed) -> None:
        self._sizes = np.random.default_rng(sizes)
        self.rng = np.random.default_rng(values)

    def upto(self, most: int) -> int:
        """A size from 2 to `most`."""
        return int(self._sizes.integers(2, most + 1))

    def pick(self, *options: Option) -> Option:
        """One of them."""
        return options[int(self._sizes.integers(len(options)))]

    def array(self, *shape: int) -> np.ndarray:
        """float32, normal."""
        return self.rng.standard_normal(shape).astype(np.float32)

    def mask(self, *shape: int) -> np.ndarray:
        """bool, of any density."""
        return self.rng.random(shape) < self.rng.random()

    def pruned(self, *shape: int) -> np.ndarray:
        """float32, a fifth of it kept, and the same number of entries for equal shapes."""
        keep = np.arange(math.prod(shape)) % 5 == 0
        return np.where(self._sizes.permutation(keep).reshape(shape), self.array(*shape), 0)

    def fixed(self, *shape: int) -> np.ndarray:
        """float32, normal, drawn from the seed of sizes."""
        return self._sizes.standard_normal(shape).astype(np.float32)


def masked_conv(n: Sizes) -> Program:
    c, o, images = n.upto(12), n.upto(12), (1, n.upto(16), n.upto(16))
    operands = n.array(*images, c), n.array(3, 3, c, o), n.mask(*images)
    return Program(lambda x, k, m: js.masked_conv(x, k, m, activation="relu"), operands, 2)


def indexed_conv(n: Sizes) -> Program:
    c, images, tile = n.upto(12), (1, n.upto(16), n.upto(16)), (n.upto(5), n.upto(5))
    operands = n.array(*images, c), n.array(3, 3, c, c), n.mask(*images)

    def run(x: Any, kernel: Any, mask: Any) -> Any:
        index = js.tile_index(mask, tile)
        return js.masked_conv(js.masked_conv(x, kernel, index), kernel, index, base=x)

    return Program(run, operands, 2)


def stack(n: Sizes) -> Program:
    c, images = n.upto(9), (1, n.upto(12), n.upto(12))
    operands = n.array(*images, c), n.array(3, 3, c, c), n.mask(*images)
    return Program(lambda x, k, m: js.masked_conv_stack(x, [k, k], m, [x, x])[-1], operands, 2)


def indices(n: Sizes) -> Program:
    images, tile = (n.upto(3), n.upto(20), n.upto(40)), (n.upto(9), n.upto(9))

    def words(mask: Any) -> Any:
        return js.unpack_mask(js.pack_mask(mask), images[2])

    def affected(mask: Any) -> Any:
        return [i.count for i in js.affected_index(mask, [[(3, 1)], [(3, 2)]], (4, 4))]

    def tiles(mask: Any) -> Any:
        return js.tile_index(mask, tile, ordered=True).ids

    def components(mask: Any) -> Any:
        return js.tile_index(mask, tile, align="component").count

    return Program(n.pick(words, affected, tiles, components), (n.mask(*images),))


def tokens(n: Sizes) -> Program:
    d, o, rows = n.upto(30), n.upto(30), n.upto(40)

    def packed(x: Any, w: Any, mask: Any) -> Any:
        return js.unpack_tokens(*js.pack_tokens(x @ w, mask))

    def normal(x: Any, w: Any, mask: Any) -> Any:
        return js.masked_norm(x @ w, mask, kind="layer")

    run = n.pick(packed, normal, js.masked_dense)
    return Program(run, (n.array(1, rows, d), n.array(d, o), n.mask(1, rows)), 2)


def experts(n: Sizes) -> Program:
    d, o, rows, groups, top_k = n.upto(24), n.upto(24), n.upto(40), n.upto(9), n.upto(3)
    ids = n.rng.integers(0, groups, (rows, top_k)).astype(np.int32)

    def run(x: Any, w: Any, ids: Any) -> Any:
        to = js.route(ids, groups)
        return js.grouped_matmul(x, w, to.group_sizes, gather=to.gather, scatter=to.scatter)

    return Program(run, (n.array(rows, d), n.array(groups, d, o), ids), 2)


def masked_matmul(n: Sizes) -> Program:
    (m, k, o), block = (n.upto(40) for _ in "mkn"), (n.upto(9), n.upto(9))
    mask = n.mask(-(-m // block[0]), -(-k // block[1]))
    run = lambda a, b, mask: js.masked_matmul(a, b, a_mask=mask, granularity=block)  # noqa: E731
    return Program(run, (n.array(m, k), n.array(k, o), mask), 2)


def kept_matmul(n: Sizes) -> Program:
    (m, k, o), block = (n.upto(40) for _ in "mkn"), (n.upto(9), n.upto(9))
    grid = -(-m // block[0]), -(-k // block[1])
    operands = n.array(grid[0] * grid[1], *block), n.array(k, o), n.mask(*grid)
    return Program(
        lambda v, b, mask: js.kept_matmul(v, js.kept_blocks(mask, (m, k), block), b), operands, 2
    )


def attention(n: Sizes) -> Program:
    rows, columns, heads, block = n.upto(60), n.upto(60), n.upto(3), 16 * n.upto(3)
    operands = n.array(1, rows, heads, 8), n.array(1, columns, heads, 8)
    keep = n.mask(1, 1, rows, columns)

    def run(q: Any, k: Any, keep: Any) -> Any:
        return js.sparse_attention(q, k, k, js.BlockMask.from_dense(keep, block))

    return Program(run, (*operands, keep), 2)


def ffn(n: Sizes) -> Program:
    rows, d, f = n.upto(9), n.upto(24), n.upto(60)
    return Program(js.sparse_ffn, (n.array(rows, d), n.array(d, f), n.array(f, d)), 3)


def pruned_matmul(n: Sizes) -> Program:
    k, o, rows = n.upto(50), n.upto(50), n.upto(20)
    weight = js.pruned.inspect(n.pruned(k, o))
    gone = weakref.ref(weight.pattern), weakref.ref(weight.plan)
    return Program(lambda x: js.pruned_matmul(x, weight), (n.array(rows, k),), 1, gone)


def pruned_conv(n: Sizes) -> Program:
    c, o, images = n.upto(12), n.upto(12), (1, n.upto(12), n.upto(12))
    weight = js.pruned.inspect(n.pruned(3, 3, c, o), kind="conv")
    gone = weakref.ref(weight.pattern), weakref.ref(weight.plan)
    return Program(lambda x: js.pruned_conv(x, weight), (n.array(*images, c),), 1, gone)


def bounded(n: Sizes) -> Program:
    widths, rows = [n.upto(30) for _ in range(3)], n.upto(9)
    layers: list[js.bounded.Layer] = []
    for a, b in itertools.pairwise(widths):
        dense = n.fixed(a, b)
        layers.append(js.bounded.inspect(np.where(dense > 0.8, dense, 0), n.fixed(b), 2.0))
    network = js.bounded.network(layers)

    def product(x: Any) -> Any:
        return js.bounded_matmul(x, layers[0]).materialize()

    run = n.pick(product, lambda x: network(x).materialize())
    gone = weakref.ref(layers[0]), weakref.ref(network)
    return Program(run, (n.array(rows, widths[0]),), 1, gone)


FAMILIES: dict[str, Callable[[Sizes], Program]] = {
    "masked_conv": masked_conv,
    "masked_conv of an index": indexed_conv,
    "masked_conv_stack": stack,
    "indices": indices,
    "tokens": tokens,
    "grouped_matmul": experts,
    "masked_matmul": masked_matmul,
    "kept_matmul": kept_matmul,
    "sparse_attention": attention,
    "sparse_ffn": ffn,
    "pruned_matmul": pruned_matmul,
    "pruned_conv": pruned_conv,
    "bounded": bounded,
}


def plain_conv(n: Sizes) -> Program:
    c, o, images = n.upto(12), n.upto(12), (1, n.upto(16), n.upto(16))

    def run(x: Any, kernel: Any, mask: Any) -> Any:
        y = jax.lax.conv_general_dilated(
            x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return jnp.where(mask[..., None], jax.nn.relu(y), 0)

    return Program(run, (n.array(*images, c), n.array(3, 3, c, o), n.mask(*images)), 2)


def plain_attention(n: Sizes) -> Program:
    rows, columns, heads = n.upto(60), n.upto(60), n.upto(3)
    operands = n.array(1, rows, heads, 8), n.array(1, columns, heads, 8)
    run = lambda q, k, keep: jax.nn.dot_product_attention(q, k, k, mask=keep)  # noqa: E731
    return Program(run, (*operands, n.mask(1, 1, rows, columns)), 2)


def plain_indices(n: Sizes) -> Program:
    def run(mask: Any) -> Any:
        places = jnp.nonzero(mask, size=mask.size, fill_value=-1)[0]
        return places, jnp.argsort(mask), jnp.cumsum(mask), mask.sum()

    return Program(run, (n.mask(n.upto(900)),))


def plain_products(n: Sizes) -> Program:
    rows, d, f = n.upto(40), n.upto(24), n.upto(60)
    run = lambda x, up, down: jax.nn.relu(x @ up) @ down  # noqa: E731
    return Program(run, (n.array(rows, d), n.array(d, f), n.array(f, d)), 3)


PLAIN: dict[str, Callable[[Sizes], Program]] = {
    "convolution": plain_conv,
    "attention": plain_attention,
    "indices": plain_indices,
    "products": plain_products,
}
