"""The section "decode": few queries for each sequence, over the kept blocks of a long cache."""

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch_sides as rivals
from problem import COPY_RATE, normal

import jaxsparse as js

if TYPE_CHECKING:
    from table import Bench

DEPTH, SETS_BYTES, BOUND = 128, 256e6, 2e-2


class Decode(NamedTuple):
    """`queries` of each of `batch` sequences attend to the share `kept` of the blocks of `block`
    positions of a cache with `cache` positions.
    """

    batch: int
    queries: int
    heads: int
    kv_heads: int
    cache: int
    block: int
    kept: float


CASES = (
    Decode(32, 1, 32, 8, 8192, 64, 1.0),
    Decode(32, 1, 32, 8, 32768, 64, 0.1),
    Decode(32, 1, 32, 8, 32768, 16, 0.1),
    Decode(1, 1, 32, 8, 131072, 64, 0.25),
    Decode(8, 1, 16, 16, 32768, 64, 0.25),
    Decode(8, 8, 32, 8, 32768, 64, 0.25),
    Decode(16, 1, 64, 1, 32768, 64, 0.5),
)


def _lists(case: Decode) -> np.ndarray:
    """bool[batch, 1, 1, blocks]: the same number of kept blocks for each sequence."""
    blocks = case.cache // case.block
    order = np.random.default_rng(0).random((case.batch, 1, 1, blocks)).argsort(-1)
    return order.argsort(-1) < round(case.kept * blocks)


def _want(q: jax.Array, k: jax.Array, v: jax.Array, keep: jax.Array, block: int) -> jax.Array:
    """The expected result of the first sequence, in float32."""
    group = q.shape[2] // k.shape[2]
    q, k, v = (x[0].astype(jnp.float32) for x in (q, k, v))
    k, v = (jnp.repeat(x, group, 1) for x in (k, v))
    scores = jnp.einsum("tnh,snh->nts", q, k, precision="highest") * q.shape[-1] ** -0.5
    p = jax.nn.softmax(jnp.where(jnp.repeat(keep[0, 0], block, -1), scores, -jnp.inf))
    return jnp.einsum("nts,snh->tnh", p, v, precision="highest")


def decode_lines(bench: "Bench") -> list[str]:
    """The lines of the table."""
    head = "| sequences x queries x heads/heads of keys, cache, block | kept | us | floor, us"
    head += " | floor / us"
    lines = [head + " | torch cuDNN, whole cache |", "|---" * 6 + "|"]
    for case in CASES:
        lines.append(_row(bench, case))
        print(lines[-1], flush=True)
    return lines


def _row(bench: "Bench", case: Decode) -> str:
    of_cache = case.batch, case.cache, case.kv_heads, DEPTH
    read = 2 * 2 * np.prod(of_cache) * case.kept
    sets = int(np.clip(SETS_BYTES // read, 1, 4))
    caches = [(normal(of_cache, 10 + i), normal(of_cache, 20 + i)) for i in range(sets)]
    q = normal((case.batch, case.queries, case.heads, DEPTH), 1)
    keep = jnp.asarray(_lists(case))
    mask = js.BlockMask.from_block_bits(keep, (16, case.block), case.queries, case.cache)
    want = jax.jit(_want, static_argnums=4)(q, *caches[0], keep, case.block)
    whole = jax.jit(_want, static_argnums=4)(q, *caches[0], jnp.ones_like(keep), case.block)

    def check(exact: jax.Array) -> Any:
        return lambda got: float(jnp.abs(got[0][0] - exact).max() / jnp.abs(exact).max())

    ours = {"": lambda: bench.jax_side(lambda: bench.chains.decode(q, caches, mask), sets)}
    us = bench.measure(ours, check(want), BOUND)[""]
    dense = {"torch": lambda: bench.torch_side(rivals.Cached(q, caches))}
    torch = bench.measure(dense, check(whole), BOUND)["torch"]
    floor = read / COPY_RATE
    cells = [
        f"{case.batch} x {case.queries} x {case.heads}/{case.kv_heads}, {case.cache}, {case.block}",
        f"{case.kept:.0%}",
        us if isinstance(us, str) else f"{us:.1f}",
        f"{floor:.1f}",
        "" if isinstance(us, str) else f"{floor / us:.0%}",
        torch if isinstance(torch, str) else f"{torch:.1f}",
    ]
    return f"| {' | '.join(cells)} |"
