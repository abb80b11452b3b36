"""`masked_dense`: a dense layer at the tokens that count. One row of pixels is a batch of tokens,
and a 1x1 window a dense layer: so this is `masked_conv` with its kernels, gradients and
transforms, under the names of a dense layer."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxsparse.ffi import Implementation
from jaxsparse.index import TileIndex, tile_index
from jaxsparse.ops.checks import check_activation, check_float, check_rank
from jaxsparse.ops.masked_conv import masked_conv
from jaxsparse.select.config import settings


def masked_dense(
    x: Float[Array, "*batch d"],
    w: Float[Array, "d n"],
    token_mask: Bool[Array, "*batch"] | TileIndex,
    *,
    bias: Float[Array, "n"] | None = None,
    activation: str | None = None,
    base: Float[Array, "*batch n"] | None = None,
    precision: jax.lax.PrecisionLike = None,
    preferred_element_type: Any = None,
    implementation: Implementation = None,
) -> Float[Array, "*batch n"]:
    """A dense layer at the tokens that count only: `where(token_mask, activation(x @ w + bias),
    base)`.

    The other tokens are neither read (they may hold NaN) nor multiplied; so a padded batch costs
    what its tokens cost. Differentiable in x, w, bias and base; the gradients touch the same
    tokens only.

    Args:
        x: float32, bfloat16 or float16 [*batch, d], one batch axis or more.
        w: same dtype as x, [d, n].
        token_mask: bool[*batch] (`js.lengths_mask` makes one of lengths), or a `TileIndex` from
            `token_index`, built once for many layers.
        bias: [n], added in float32.
        activation: None, "relu", "relu6", "silu" or "gelu" (tanh form), applied before rounding.
        base: what the result starts as, in its dtype; None means zeros. Its buffer becomes the
            result's where it may be donated.
        precision: as in jax.lax.
        preferred_element_type: the result's dtype: x's dtype (default) or float32.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.

    Returns:
        [*batch, n] of x's dtype or float32.

    Raises:
        TypeError, ValueError: for a wrong rank, shape, dtype or option, naming the argument;
            ValueError when a named implementation cannot run.
    """
    if not hasattr(x, "shape") or not hasattr(x, "dtype"):
        raise TypeError(f"x must be an array, not {type(x).__name__}")
    if len(x.shape) < 2:
        raise ValueError(f"x has shape {tuple(x.shape)}; it needs at least 2 axes")
    check_rank("w", w, 2)
    x, w = jnp.asarray(x), jnp.asarray(w)
    check_float("x", x)
    if w.dtype != x.dtype:
        raise TypeError(f"w has dtype {w.dtype}, x has {x.dtype}: they must be equal")
    if w.shape[0] != x.shape[-1]:
        raise ValueError(f"w has shape {w.shape}; x {x.shape} needs [{x.shape[-1]}, n]")
    batch, n = x.shape[:-1], w.shape[1]
    check_activation(activation)
    if bias is not None and getattr(bias, "shape", None) != (n,):
        raise ValueError(
            f"bias has shape {getattr(bias, 'shape', None)}; w's {n} outputs need ({n},)"
        )
    out_dtype = np.dtype(preferred_element_type or x.dtype)
    if base is not None and (base.shape != (*batch, n) or base.dtype != out_dtype):
        raise ValueError(
            f"base is {base.dtype}{list(base.shape)}; the result is {out_dtype}{[*batch, n]}"
        )
    rows = (math.prod(batch[:-1]), 1, batch[-1])
    out = masked_conv(
        x.reshape(*rows, x.shape[-1]),
        w[None, None],
        _index(token_mask, batch, implementation),
        bias=bias,
        activation=activation,
        base=None if base is None else base.reshape(*rows, n),
        precision=precision,
        preferred_element_type=preferred_element_type,
        implementation=implementation,
    )
    return out.reshape(*batch, n)


def token_index(
    token_mask: Bool[Array, "*batch"], *, implementation: Implementation = None
) -> TileIndex:
    """The index of a token mask, to share among the layers that work on the same tokens.

    Args:
        token_mask: bool[*batch], one axis or more.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.

    Returns:
        A TileIndex of single tokens; its shape is (product of the leading axes, 1, last axis).

    Raises:
        TypeError, ValueError: for another dtype, or a scalar.
    """
    if not hasattr(token_mask, "shape") or not hasattr(token_mask, "dtype"):
        raise TypeError(f"token_mask must be an array, not {type(token_mask).__name__}")
    if token_mask.dtype != np.bool_:
        raise TypeError(f"token_mask has dtype {token_mask.dtype}; it takes bool")
    if not token_mask.shape:
        raise ValueError("token_mask is a scalar; it needs at least one axis")
    shape = (math.prod(token_mask.shape[:-1]), 1, token_mask.shape[-1])
    mask = jnp.asarray(token_mask).reshape(shape)
    return tile_index(mask, (1, 1), ordered=settings().deterministic, implementation=implementation)


def _index(token_mask: Any, batch: tuple[int, ...], implementation: Implementation) -> TileIndex:
    shape = (math.prod(batch[:-1]), 1, batch[-1])
    if isinstance(token_mask, TileIndex):
        if token_mask.shape != shape:
            raise ValueError(
                f"token_mask is a TileIndex of {token_mask.shape}; x's tokens {batch} need {shape}"
            )
        return token_mask
    index = token_index(token_mask, implementation=implementation)
    if token_mask.shape != batch:
        raise ValueError(f"token_mask has shape {token_mask.shape}; x's tokens have {batch}")
    return index
