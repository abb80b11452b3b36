"""Attention by name, with the tags of `cases`: "cpu", "gpu", "quick"."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class AttentionCase:
    """q[batch, tokens, heads, depth] over k and v[batch, keys, kv_heads, depth], under a mask of
    blocks that all heads share.
    """

    name: str
    batch: int
    tokens: int
    keys: int
    heads: int
    kv_heads: int
    depth: int
    block_size: tuple[int, int]
    tags: frozenset[str] = frozenset()

    @property
    def grid(self) -> tuple[int, int]:
        """Blocks of queries, blocks of keys."""
        return -(-self.tokens // self.block_size[0]), -(-self.keys // self.block_size[1])

    def bits(self, sparsity: float, seed: int = 0) -> np.ndarray:
        """bool[1, 1, Q, C]; exactly that share of the blocks is unset, rounded."""
        count = self.grid[0] * self.grid[1]
        order = np.random.default_rng(seed).permutation(count)
        return (order >= round(sparsity * count)).reshape(1, 1, *self.grid)


def _case(tag: str, tokens: int, heads: int, depth: int, block: int, **more: int) -> AttentionCase:
    kv_heads, batch = more.get("kv_heads", heads), more.get("batch", 1)
    shared = f"_of_{kv_heads}" if kv_heads != heads else ""
    name = f"b{batch}_t{tokens}_h{heads}{shared}_d{depth}_{block}x{block}"
    size = (block, block)
    return AttentionCase(
        name, batch, tokens, tokens, heads, kv_heads, depth, size, frozenset({tag})
    )


_ALL = (
    *(_case("cpu", 4096, 4, 64, block) for block in (16, 64, 128)),
    _case("cpu", 4096, 8, 128, 128, kv_heads=2),
    *(_case("gpu", tokens, 16, 128, block) for tokens in (8192, 32768) for block in (64, 128)),
    _case("gpu", 8192, 16, 64, 128),
    _case("gpu", 8192, 32, 128, 128, kv_heads=8),
    _case("quick", 96, 4, 16, 16, kv_heads=2, batch=2),
)

#: Name -> case of `sparse_attention`.
ATTENTION_CASES = {one.name: one for one in _ALL}
