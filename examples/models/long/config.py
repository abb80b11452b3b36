"""Sizes and inputs of the two networks for long inputs."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

KINDS = ("longformer", "museformer")
HEAD = 64
VOCABULARY = 1024
GLOBALS = 64  # so many global tokens at most
BARS = (1, 2, 4, 8, 12, 16, 24, 32)  # how many bars back a token attends to
FINE = np.isin(np.arange(BARS[-1] + 1), (0, *BARS))  # by distance in bars


class Config(NamedTuple):
    """Sizes. `reach`: positions on each side of a token that are in its window. `bar`: fewest and
    most tokens of a bar. `block`: queries and keys of a block of the mask.
    """

    kind: str
    layers: int
    heads: int
    reach: int = 256
    bar: tuple[int, int] = (64, 160)
    block: tuple[int, int] = (128, 64)

    @property
    def d(self) -> int:
        """The width of a token."""
        return HEAD * self.heads

    def summaries(self, tokens: int) -> int:
        """How many rows of summaries stand before the tokens: one for each bar there can be, in
        whole blocks.
        """
        if self.kind == "longformer":
            return 0
        unit = max(self.block)
        return -(-tokens // (self.bar[0] * unit)) * unit


PAPERS = {
    "longformer": Config("longformer", 12, 12),
    "museformer": Config("museformer", 4, 8),
}


def inputs(config: Config, batch: int, tokens: int, seed: int) -> tuple[jax.Array, jax.Array]:
    """Tokens int32[B,T], and what changes with the input: the positions of the global tokens
    int32[B,GLOBALS], -1 after the last, or the bar of each token int32[B,T].
    """
    rng = np.random.default_rng([seed, tokens])
    ids = rng.integers(0, VOCABULARY, (batch, tokens), np.int32)
    rows = []
    for _ in range(batch):
        if config.kind == "longformer":
            count = rng.integers(1, min(GLOBALS, tokens) + 1)
            row = np.full(GLOBALS, -1)
            row[:count] = np.sort(rng.choice(tokens, count, replace=False))
        else:
            lengths = rng.integers(config.bar[0], config.bar[1] + 1, tokens // config.bar[0] + 1)
            row = np.repeat(np.arange(len(lengths)), lengths)[:tokens]
        rows.append(row)
    return jnp.asarray(ids), jnp.asarray(np.stack(rows), jnp.int32)
