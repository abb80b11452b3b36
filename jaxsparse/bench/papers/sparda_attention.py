"""The attention of SparDA's two sparse transformers, under masks that change from call to call."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from jaxsparse.bench.papers.exhibit import Figure, Setting, speedups
from jaxsparse.bench.products.run import Comparison, element_type, normal
from jaxsparse.index import BlockMask, create_block_mask
from jaxsparse.ops import sparse_attention

Rule = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]  # (own, query, key) -> bool
WINDOW, GLOBAL = 512, 16
BAR, RELATED = 64, (1, 2, 4, 8, 12, 16, 24, 32)
BLOCK = (64, 64)


def figure_6(setting: Setting) -> Iterator[Figure]:
    """Longformer: a sliding window, and `GLOBAL` tokens at random positions."""

    def rule(places: jax.Array, query: jax.Array, key: jax.Array) -> jax.Array:
        near = abs(query - key) <= WINDOW // 2
        one = (places[:, None] == query.reshape(1, -1)).any(0).reshape(query.shape)
        other = (places[:, None] == key.reshape(1, -1)).any(0).reshape(key.shape)
        return near | one | other

    for tokens in (2048, 4096, 16384) if setting.full else (1024,):
        own = [
            jax.random.randint(jax.random.key(i), (GLOBAL,), 0, tokens)
            for i in range(setting.plan.calls)
        ]
        one = _comparison("Longformer", tokens, 12, own, rule, setting)
        yield from speedups([one], setting, memory=True)


def figure_7(setting: Setting) -> Iterator[Figure]:
    """Museformer: bars of `BAR` tokens, shifted by a random number for each call."""

    def rule(shift: jax.Array, query: jax.Array, key: jax.Array) -> jax.Array:
        bar, other = (query + shift) // BAR, (key + shift) // BAR
        back = bar - other
        related = jnp.zeros(back.shape, bool)
        for distance in RELATED:
            related |= back == distance
        summary = (key + shift) % BAR == 0
        return (key <= query) & ((back == 0) | related | summary)

    for tokens in (2048, 4096, 8192, 16384) if setting.full else (1024,):
        own = [jax.random.randint(jax.random.key(i), (), 0, BAR) for i in range(setting.plan.calls)]
        one = _comparison("Museformer", tokens, 8, own, rule, setting)
        yield from speedups([one], setting, memory=True)


def _comparison(
    name: str, tokens: int, heads: int, own: list[jax.Array], rule: Rule, setting: Setting
) -> Comparison:
    """Both sides build the mask inside the call: ours in blocks, the other as tokens x tokens."""
    dtype = "bfloat16" if setting.gpu else "float32"
    kind, shape = element_type(dtype), (1, tokens, heads, 64)
    operands = {"k": normal(shape, kind, 1), "v": normal(shape, kind, 2), "own": tuple(own)}

    def square(own: jax.Array) -> jax.Array:
        return rule(own, jnp.arange(tokens)[:, None], jnp.arange(tokens)[None])[None, None]

    def want(x: jax.Array, own: jax.Array, operands: Any) -> jax.Array:
        arrays = [a.astype(jnp.float32) for a in (x, operands["k"], operands["v"])]
        with jax.default_matmul_precision("highest"):
            return jax.nn.dot_product_attention(*arrays, mask=square(own))

    def dense(i: int, x: jax.Array, operands: Any) -> jax.Array:
        k, v, mask = operands["k"], operands["v"], square(operands["own"][i])
        return jax.nn.dot_product_attention(
            x, k, v, mask=mask, implementation="cudnn" if setting.gpu else None
        )

    def ours(i: int, x: jax.Array, operands: Any) -> jax.Array:
        mine = operands["own"][i]
        mask: BlockMask = create_block_mask(
            lambda b, h, query, key: rule(mine, query, key), 1, 1, tokens, tokens, BLOCK
        )
        return sparse_attention(x, operands["k"], operands["v"], mask)

    return Comparison(
        "sparse_attention",
        name,
        f"{tokens:,} tokens, {heads} heads of 64",
        dtype,
        lambda seed: normal(shape, kind, 10 + seed),
        want,
        operands,
        own,
        {"jax.nn with the mask": dense, "jaxsparse": ours},
    )
