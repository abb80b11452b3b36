"""What is static about one call of `sparse_attention`, and the order of its arrays."""

import dataclasses
from typing import NamedTuple

import jax
from jax import lax

from jaxsparse.ffi import Implementation


@dataclasses.dataclass(frozen=True)
class AttentionParams:
    """What is static about one call: `soft_cap` 0 is none."""

    block_size: tuple[int, int]
    scale: float
    soft_cap: float
    precision: str
    implementation: Implementation = None

    @property
    def lax_precision(self) -> lax.Precision:
        """The precision as jax.lax takes it."""
        return lax.Precision.HIGHEST if self.precision == "highest" else lax.Precision.DEFAULT


class Mask(NamedTuple):
    """The arrays of a `BlockMask` that kernels read."""

    kv_counts: jax.Array
    kv_blocks: jax.Array
    kv_slots: jax.Array
    q_counts: jax.Array
    q_blocks: jax.Array
    q_slots: jax.Array
    words: jax.Array


class Forward(NamedTuple):
    """The arrays of a call, in the order of its handler."""

    q: jax.Array
    k: jax.Array
    v: jax.Array
    kv_counts: jax.Array
    kv_blocks: jax.Array
    kv_slots: jax.Array
    words: jax.Array
    slopes: jax.Array | None
    bias: jax.Array | None


class Backward(NamedTuple):
    """The arrays of its gradient, in the order of that handler."""

    q: jax.Array
    k: jax.Array
    v: jax.Array
    out: jax.Array
    lse: jax.Array
    gout: jax.Array
    glse: jax.Array | None
    kv_counts: jax.Array
    kv_blocks: jax.Array
    kv_slots: jax.Array
    q_counts: jax.Array
    q_blocks: jax.Array
    q_slots: jax.Array
    words: jax.Array
    slopes: jax.Array | None
    bias: jax.Array | None


def forward_arrays(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    mask: Mask,
    slopes: jax.Array | None,
    bias: jax.Array | None,
) -> Forward:
    """What the forward handler takes."""
    return Forward(q, k, v, *mask[:3], mask.words, slopes, bias)
