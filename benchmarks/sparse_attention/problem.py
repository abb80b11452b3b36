"""One problem of the attention benchmark: sizes, a mask of blocks, and the expected output at a
sample of its rows.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxsparse as js

SAMPLES = 48
COPY_RATE = 4.3e6  # bytes per microsecond of a copy on an H200, read and written


@dataclasses.dataclass(frozen=True)
class Problem:
    """q, k and v of [1, tokens, heads, depth], bfloat16, under a mask that all heads share.

    Attributes:
        tokens: the number of queries, and of keys.
        heads: the number of heads of q, k and v.
        depth: elements of a head.
        block: the number of queries, and of keys, of a block.
        kept: the share of the blocks that the mask keeps, at random places; 1 keeps all.
        causal: keep the keys up to the query; `kept` is not used.
        row_blocks: the number of blocks that each row of blocks keeps, in place of `kept`; 0 uses
            `kept`.
        goal: the project's goal for the forward pass in microseconds, or 0.
    """

    tokens: int
    heads: int
    depth: int
    block: int
    kept: float = 1.0
    causal: bool = False
    row_blocks: int = 0
    goal: float = 0.0

    @property
    def name(self) -> str:
        """The sizes, for a table."""
        return f"{self.tokens} x {self.heads}, d{self.depth}, block {self.block}"

    @property
    def form(self) -> str:
        """What the mask leaves out, for a table."""
        if self.causal:
            return "causal"
        if self.row_blocks:
            return f"{self.row_blocks} of {self.blocks} blocks"
        return "full" if self.kept == 1 else f"{100 * (1 - self.kept):g} %"

    @property
    def blocks(self) -> int:
        """The number of blocks in a row or column of the mask."""
        return -(-self.tokens // self.block)

    @functools.cached_property
    def bits(self) -> np.ndarray:
        """bool[blocks, blocks]: the blocks that the mask keeps."""
        n, rng = self.blocks, np.random.default_rng(0)
        if self.causal:
            return np.tri(n, dtype=bool)
        if self.row_blocks:
            return rng.random((n, n)).argsort(1).argsort(1) < self.row_blocks
        return (rng.permutation(n * n) < round(self.kept * n * n)).reshape(n, n)

    @property
    def pairs(self) -> float:
        """The number of pairs of a query and a key that the mask keeps, of all heads."""
        if self.causal:
            return self.heads * self.tokens * (self.tokens + 1) / 2
        return self.heads * float(self.bits.sum()) * self.block**2

    def mask(self) -> js.BlockMask:
        """The mask for `js.sparse_attention`."""
        if self.causal:
            return js.block_masks.causal(self.tokens, block_size=self.block)
        return js.BlockMask.from_block_bits(
            self.bits[None, None], self.block, self.tokens, self.tokens
        )

    def counts(self, queries: np.ndarray, keys: np.ndarray) -> jax.Array:
        """bool[queries, keys]: which pairs of these positions the mask keeps."""
        found = self.bits[queries[:, None] // self.block, keys[None] // self.block]
        return jnp.asarray(found & (queries[:, None] >= keys[None]) if self.causal else found)

    def normal(self, seed: int) -> jax.Array:
        """Random numbers of q's shape."""
        shape = 1, self.tokens, self.heads, self.depth
        return normal(shape, seed)

    @functools.cached_property
    def sample(self) -> np.ndarray:
        """The positions at which results are checked, as queries and as keys."""
        rng = np.random.default_rng(1)
        few = rng.permutation(self.tokens)[: SAMPLES - 2]
        return np.sort(np.concatenate([few, [0, self.tokens - 1]]))


def normal(shape: tuple[int, ...], seed: int) -> jax.Array:
    """Random bfloat16 numbers, made on the device."""
    return _normal(shape, jax.random.key(seed))


@functools.partial(jax.jit, static_argnums=0)
def _normal(shape: tuple[int, ...], key: jax.Array) -> jax.Array:
    return jax.random.normal(key, shape, jnp.bfloat16)


class Wanted(NamedTuple):
    """The expected sampled rows, float32[samples, heads, depth]."""

    out: jax.Array
    dq: jax.Array
    dk: jax.Array
    dv: jax.Array


def wanted(problem: Problem, q: Any, k: Any, v: Any, g: Any, out: Any, lse: Any) -> Wanted:
    """The expected rows, in float32 from the definition. The gradients of keys and values need the
    softmax of every row, which is taken from `out` and `lse` of a forward call; that call's samples
    are checked separately.
    """
    every = np.arange(problem.tokens)
    rows, columns = (
        problem.counts(*at) for at in ((problem.sample, every), (every, problem.sample))
    )
    return _wanted(q, k, v, g, out, lse, rows, columns, problem.sample)


@jax.jit
def _wanted(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    g: jax.Array,
    out: jax.Array,
    lse: jax.Array,
    rows: jax.Array,
    columns: jax.Array,
    sample: jax.Array,
) -> Wanted:
    q, k, v, g, out = (x[0].astype(jnp.float32) for x in (q, k, v, g, out))
    scale = q.shape[-1] ** -0.5
    multiply = functools.partial(jnp.einsum, precision="highest")
    scores = scale * multiply("tnh,snh->nts", q[sample], k)
    some = rows.any(-1)[None, :, None]
    p = jax.nn.softmax(jnp.where(rows, scores, -jnp.inf), where=some)
    p = jnp.where(some, p, 0.0)
    dp = multiply("tnh,snh->nts", g[sample], v)
    ds = p * (dp - (p * dp).sum(-1, keepdims=True))
    dq = scale * multiply("nts,snh->tnh", ds, k)
    scores = scale * multiply("tnh,snh->nts", q, k[sample])
    of_keys = jnp.where(columns, jnp.exp(scores - lse[0][..., None]), 0.0)
    dp = multiply("tnh,snh->nts", g, v[sample])
    ds = of_keys * (dp - (g * out).sum(-1).T[..., None])
    dk, dv = (multiply("nts,tnh->snh", x, y) for x, y in ((scale * ds, q), (of_keys, g)))
    return Wanted(multiply("nts,snh->tnh", p, v), dq, dk, dv)


def error(got: Any, want: jax.Array, sample: np.ndarray) -> float:
    """The largest difference of the sampled rows, divided by the largest value; inf for NaN."""
    return float(_error(got, want, sample))


@jax.jit
def _error(got: jax.Array, want: jax.Array, sample: jax.Array) -> jax.Array:
    off = jnp.abs(got[0][sample].astype(jnp.float32) - want).max() / jnp.abs(want).max()
    return jnp.where(jnp.isnan(off), jnp.inf, off)
