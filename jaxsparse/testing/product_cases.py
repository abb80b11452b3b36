"""Matrix products and mixtures of experts by name, with the tags of `cases`: "cpu", "gpu", "quick".

"experts" are those of a switch transformer's base size on a GPU; "large" its largest ones.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

from jaxsparse.core.types import ExpertActivation
from jaxsparse.testing.attention_cases import AttentionCase
from jaxsparse.testing.ffn_cases import FfnCase

Block = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class GroupedCase:
    """Tokens with `top_k` experts each: lhs[tokens, depth] by rhs[experts, depth, outputs].

    `skew` says who gets them: "uniform", "zipf" (expert e gets a share of 1 / (e + 1)) or "one"
    (the first takes all).
    """

    name: str
    tokens: int
    experts: int
    depth: int
    outputs: int
    top_k: int = 1
    skew: str = "uniform"
    tags: frozenset[str] = frozenset()

    def expert_ids(self, seed: int = 0) -> np.ndarray:
        """int32[tokens, top_k], the experts of a token distinct unless one takes all."""
        rng = np.random.default_rng(seed)
        if self.skew == "one":
            return np.zeros((self.tokens, self.top_k), np.int32)
        share = (
            np.ones(self.experts) if self.skew == "uniform" else 1 / np.arange(1, self.experts + 1)
        )
        noise = rng.gumbel(size=(self.tokens, self.experts)) + np.log(share)
        return np.argsort(-noise, axis=1)[:, : self.top_k].astype(np.int32)


@dataclasses.dataclass(frozen=True)
class MatmulCase:
    """a[m, k] by b[k, n] under a random mask of blocks of one of a, b and the result ("out")."""

    name: str
    m: int
    k: int
    n: int
    block: Block
    masked: str = "a"
    tags: frozenset[str] = frozenset()

    @property
    def mask_shape(self) -> tuple[int, int]:
        """Blocks of the masked matrix."""
        size = {"a": (self.m, self.k), "b": (self.k, self.n), "out": (self.m, self.n)}[self.masked]
        return -(-size[0] // self.block[0]), -(-size[1] // self.block[1])

    def mask(self, sparsity: float, seed: int = 0) -> np.ndarray:
        """bool of `mask_shape`; exactly that share of the blocks is unset, rounded."""
        count = self.mask_shape[0] * self.mask_shape[1]
        order = np.random.default_rng(seed).permutation(count)
        return (order >= round(sparsity * count)).reshape(self.mask_shape)


@dataclasses.dataclass(frozen=True)
class MoeCase:
    """A layer on tokens[batch * 128, d]: `experts` two-layer networks of width `hidden`."""

    name: str
    batch: int
    d: int
    hidden: int
    experts: int
    top_k: int = 1
    activation: ExpertActivation = "relu"
    tags: frozenset[str] = frozenset()

    @property
    def tokens(self) -> int:
        """Of a batch, 128 a row."""
        return 128 * self.batch


Named = TypeVar("Named", GroupedCase, MatmulCase, MoeCase, AttentionCase, FfnCase)


def _tags(*names: str) -> frozenset[str]:
    return frozenset(names)


def _grouped(
    tag: str, tokens: int, experts: int, depth: int, outputs: int, **more: Any
) -> GroupedCase:
    suffix = f"_{more['skew']}" if "skew" in more else ""
    name = f"t{tokens}_e{experts}_{depth}x{outputs}{suffix}"
    return GroupedCase(name, tokens, experts, depth, outputs, tags=_tags(tag), **more)


def _matmul(tag: str, size: int, block: Block, masked: str = "a") -> MatmulCase:
    name = f"{size}_{masked}_{block[0]}x{block[1]}"
    return MatmulCase(name, size, size, size, block, masked, _tags(tag))


def _switch(batch: int, experts: int) -> MoeCase:
    tags = _tags("gpu", "experts", *(["large"] if experts >= 64 else []))
    return MoeCase(f"switch_b{batch}_e{experts}", batch, 768, 3072, experts, tags=tags)


def _by_name(found: Iterable[Named]) -> dict[str, Named]:
    return {one.name: one for one in found}


_BLOCKS: tuple[Block, ...] = ((32, 64), (32, 1), (1, 64), (1, 1))

#: Name -> case of `grouped_matmul`.
GROUPED_CASES = _by_name(
    (
        *(_grouped("cpu", 1024, experts, 256, 1024) for experts in (8, 64)),
        _grouped("cpu", 16, 8, 1024, 2816),
        _grouped("cpu", 256, 2, 4096, 1024),
        *(_grouped("gpu", 4096, experts, 768, 3072) for experts in (8, 64, 128)),
        _grouped("gpu", 8192, 8, 4096, 14336),
        *(_grouped("gpu", 4096, 64, 768, 3072, skew=skew) for skew in ("zipf", "one")),
        _grouped("quick", 96, 5, 24, 40),
    )
)

#: Name -> case of `masked_matmul`.
MATMUL_CASES = _by_name(
    (
        *(
            _matmul(tag, size, block, masked)
            for tag, size in (("cpu", 1024), ("gpu", 4096))
            for masked, blocks in (("a", _BLOCKS), ("b", ((32, 64),)), ("out", ((32, 64),)))
            for block in blocks
        ),
        _matmul("quick", 96, (32, 64)),
        _matmul("quick", 96, (32, 1)),
    )
)

#: Name -> case of the mixture of experts.
MOE_CASES = _by_name(
    (
        *(_switch(batch, experts) for batch in (8, 32) for experts in (8, 16, 32, 64, 128, 256)),
        MoeCase("t8192_e128_top8", 64, 2048, 768, 128, 8, "swiglu", _tags("gpu", "wide")),
        MoeCase("t16384_e64_top4", 128, 2560, 1280, 64, 4, "swiglu", _tags("gpu", "wide")),
        *(
            MoeCase(f"small_b8_e{experts}", 8, 128, 512, experts, tags=_tags("cpu"))
            for experts in (8, 64)
        ),
        MoeCase("quick_e4", 1, 16, 24, 4, 2, "swiglu", _tags("quick")),
    )
)


def find(table: Mapping[str, Named], names: Iterable[str]) -> list[Named]:
    """The cases of a table by name or tag, each once.

    Raises:
        ValueError: for a name that is neither, listing both.
    """
    tags = sorted(set().union(*(one.tags for one in table.values())))
    found: dict[str, Named] = {}
    for name in names:
        taken = [one for one in table.values() if name == one.name or name in one.tags]
        if not taken:
            raise ValueError(
                f"case={name!r} is not one of {', '.join(table)}, nor a tag: {', '.join(tags)}"
            )
        found |= {one.name: one for one in taken}
    return list(found.values())
