"""Fake quantisation: values are rounded to those that few bits can hold, and stay float32.

Weights are symmetric, with a scale for each output channel. What a convolution reads is never
negative; its range is a trained parameter of the convolution (PACT). Gradients pass
straight through the rounding. The stem, the gates and the classifier keep 8 bits, as is usual.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

Params = dict[str, Any]
EDGE_BITS = 8


def rounded(x: jax.Array, step: jax.Array) -> jax.Array:
    """`x` at multiples of `step`; its gradient is that of x."""
    return x + lax.stop_gradient(jnp.round(x / step) * step - x)


def activations(x: jax.Array, limit: jax.Array, bits: int) -> jax.Array:
    """x >= 0, clipped at `limit` f32[], in 2**bits values; clipped values train the limit."""
    limit = jnp.abs(limit).astype(x.dtype)
    return rounded(jnp.minimum(x, limit), lax.stop_gradient(limit) / (2**bits - 1))


def kernel(w: jax.Array, bits: int) -> jax.Array:
    """[..., O] in 2**bits - 1 values of each output channel."""
    largest = jnp.abs(lax.stop_gradient(w)).max(tuple(range(w.ndim - 1)))
    return rounded(w, jnp.maximum(largest, 1e-12) / (2 ** (bits - 1) - 1))


def parameters(params: Params, bits: int) -> Params:
    """Kernels rounded to `bits` in the blocks, and to 8 in the stem, the gates and the classifier.
    Biases and ranges stay.
    """

    def few(p: Params, bits: int) -> Params:
        return p | {"w": kernel(p["w"], bits)}

    def block_of(block: Params) -> Params:
        found = block | {"convs": [few(p, bits) for p in block["convs"]]}
        found["gate"] = few(block["gate"], EDGE_BITS)
        if "shortcut" in block:
            found["shortcut"] = few(block["shortcut"], bits)
        return found

    edges = {name: few(params[name], EDGE_BITS) for name in ("stem", "logits")}
    return edges | {"blocks": [block_of(block) for block in params["blocks"]]}
