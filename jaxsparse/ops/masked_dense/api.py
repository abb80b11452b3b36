"""`masked_dense`: a dense layer at the tokens that count. One row of pixels is a batch of tokens,
and a 1x1 window a dense layer: so this is `masked_conv` with its kernels, gradients and
transforms, under the names of a dense layer."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Bool, Float

from jaxsparse.core.checks import (
    as_array,
    check_activation,
    check_array,
    check_float,
    check_like_result,
    check_rank,
    check_same_dtype,
    result_dtype,
)
from jaxsparse.core.debugging import uninspected
from jaxsparse.core.masks import check_mask
from jaxsparse.core.symbolic import in_pieces, is_symbolic
from jaxsparse.core.types import Activation
from jaxsparse.core.variables import takes_variables
from jaxsparse.ffi import Implementation
from jaxsparse.ffi.platform import NAMES, plan
from jaxsparse.ffi.whole import first_axis_alone
from jaxsparse.index import TileIndex
from jaxsparse.index.broadcast import fit_index
from jaxsparse.index.tile_index import build_index
from jaxsparse.ops.masked_conv.api import convolve
from jaxsparse.select.explain import record


@takes_variables
def masked_dense(
    x: Float[ArrayLike, "*batch d"],
    w: Float[ArrayLike, "d n"],
    mask: Bool[ArrayLike, "*batch"] | TileIndex,
    *,
    bias: Float[ArrayLike, "n"] | None = None,
    activation: Activation | None = None,
    base: Float[ArrayLike, "*batch n"] | None = None,
    precision: jax.lax.PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    implementation: Implementation = None,
) -> Float[Array, "*batch n"]:
    """A dense layer at the tokens that count only: `where(mask, activation(x @ w + bias),
    base)`.

    The other tokens are neither read (they may hold NaN) nor multiplied, so padding costs no
    products. Differentiable in x, w, bias and base; the gradients touch the same
    tokens only.

    Args:
        x: float32, bfloat16 or float16 [*batch, d], one batch axis or more.
        w: same dtype as x, [d, n].
        mask: bool[*batch] (`js.lengths_mask` makes one from lengths), or a `TileIndex` from
            `js.token_index`, built once for many layers. Leading axes of length 1 are broadcast.
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
    if is_symbolic(x):
        options = (bias, activation, precision, preferred_element_type, implementation)
        return _in_pieces(x, w, mask, base, *options)
    check_array("x", x, least=2)
    check_rank("w", w, 2)
    x, w = as_array("x", x), as_array("w", w)
    check_float("x", x)
    check_same_dtype("w", w, "x", x)
    if w.shape[0] != x.shape[-1]:
        raise ValueError(f"w has shape {w.shape}; x {x.shape} needs [{x.shape[-1]}, n]")
    batch, n = x.shape[:-1], w.shape[1]
    check_activation(activation)
    if bias is not None:
        check_rank("bias", bias, 1)
        bias = as_array("bias", bias)
        if bias.shape != (n,):
            raise ValueError(f"bias has shape {bias.shape}; w's {n} outputs need ({n},)")
    out_dtype = result_dtype(preferred_element_type, x.dtype)
    if base is not None:
        check_rank("base", base, x.ndim)
        base = as_array("base", base)
        check_like_result("base", base, (*batch, n), out_dtype)
    out = convolve(
        "masked_dense",
        _rows("x", x, 2),
        w[None, None],
        _index(mask, batch, implementation),
        bias=bias,
        activation=activation,
        base=None if base is None else _rows("base", base, 2),
        precision=precision,
        preferred_element_type=preferred_element_type,
        implementation=implementation,
    )
    return out[:, 0].reshape(*batch, n)


def _in_pieces(
    x: ArrayLike,
    w: ArrayLike,
    mask: ArrayLike | TileIndex,
    base: ArrayLike | None,
    bias: ArrayLike | None,
    activation: Activation | None,
    precision: jax.lax.PrecisionLike,
    preferred_element_type: DTypeLike | None,
    implementation: Implementation,
) -> jax.Array:
    """`masked_dense` of a first axis that is a symbol: of tokens, or of sequences."""
    if isinstance(mask, TileIndex):
        raise ValueError(
            f"x has shape [{', '.join(map(str, np.shape(x)))}] and mask is a TileIndex, whose size "
            "is static: where the batch is a symbol, pass the bool mask"
        )

    def piece(x: jax.Array, mask: jax.Array, base: jax.Array | None) -> jax.Array:
        return masked_dense(
            x,
            w,
            mask,
            bias=bias,
            activation=activation,
            base=base,
            precision=precision,
            preferred_element_type=preferred_element_type,
            implementation=implementation,
        )

    size = 1024 if np.ndim(x) == 2 else 8
    why = "an index is made for one number of tokens"
    found: jax.Array = in_pieces(piece, {"x": x, "mask": mask, "base": base}, size, rest=why)
    return found


@uninspected
def _rows(name: str, value: jax.Array, trailing: int) -> jax.Array:
    """[*axes, ...] as [product of the axes, 1, ...], with so many axes behind.

    Two steps: on a mesh of Explicit axes a reshape either joins axes or adds one.
    """
    kept = value.shape[value.ndim - trailing :]
    value = first_axis_alone("masked_dense", name, value, trailing)
    return value.reshape(math.prod(value.shape[: value.ndim - trailing]), *kept)[:, None]


@takes_variables
def token_index(
    mask: Bool[ArrayLike, "*batch"], *, implementation: Implementation = None
) -> TileIndex:
    """The index of a token mask, to share among the layers that work on the same tokens: what
    `masked_dense` takes in place of the mask.

    Args:
        mask: bool[*batch], one axis or more.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.

    Returns:
        A TileIndex of single tokens; its shape is (product of the leading axes, 1, last axis).

    Raises:
        TypeError, ValueError: for another dtype, a scalar, or an implementation that cannot run.
    """
    check_array("mask", mask)
    mask = as_array("mask", mask)
    if mask.dtype != np.bool_:
        raise TypeError(f"mask has dtype {mask.dtype}; it takes bool: `mask != 0` makes one")
    if not mask.shape:
        raise ValueError("mask is a scalar; it needs at least one axis")
    index = _list(mask, implementation)
    how = plan("tile_index", implementation, NAMES)
    record("token_index", f"bool{list(mask.shape)}", how, None, index, "tokens")
    return index


def _list(mask: jax.Array, implementation: Implementation) -> TileIndex:
    return build_index(_rows("mask", mask, 1), (1, 1), implementation=implementation)


def _index(mask: Any, batch: tuple[int, ...], implementation: Implementation) -> TileIndex:
    if isinstance(mask, TileIndex):
        shape = (math.prod(batch[:-1]), 1, batch[-1])
        hint = f", which js.token_index makes of a mask {batch}"
        return fit_index("mask", mask, shape, f"x's tokens {batch} need one of", hint)
    takes = "a bool mask or a TileIndex"
    mask = check_mask("mask", mask, batch, fixed=1, of="x's tokens have", takes=takes)
    return _list(mask, implementation)
