"""What a recorder knows of a convolution's outputs before any product.

A window of decided pixels has one of few results: for each tap at the bound, the bound times the
kernel's sum over channels. A GPU tabulates these, and finds, counts and writes such outputs; where
nearly all others see an undecided pixel it leaves them to the convolution, which then multiplies
all.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

from jaxsparse.core.activations import ACTIVATIONS, CODES
from jaxsparse.core.batching import entries, fold, loop_over, unfold
from jaxsparse.core.differentiable import Fact, differentiable, tangent_of
from jaxsparse.ffi import Rule, absent, dispatch, ffi_call, partitioned
from jaxsparse.ops.masked_conv.fill import fill_rows
from jaxsparse.ops.masked_conv.params import ConvParams
from jaxsparse.recorder import UPPER, ZERO

#: Windows of more pixels have no table of all that they may see.
MOST_TAPS = 9
#: Of 256 outputs spread over all, the share that may be near an undecided pixel before a GPU
#: multiplies every one: measured on an H200, see docs/kernels/bounded_matmul.md.
MOST_NEAR = 0.89


class Given(NamedTuple):
    """The operands of one call, as `known_windows` takes them."""

    codes: jax.Array
    cover: jax.Array
    kernel: jax.Array
    bias: jax.Array | None
    base: jax.Array | None


@dataclasses.dataclass(frozen=True)
class Known:
    """What is static about one call: of the convolution, and the bound of its input's codes."""

    conv: ConvParams
    window: tuple[int, int]
    upper: float


def known_windows(
    s: Known,
    codes: jax.Array,
    cover: jax.Array,
    kernel: jax.Array,
    bias: jax.Array | None,
    base: jax.Array | None,
) -> tuple[jax.Array, jax.Array]:
    """The outputs that see decided pixels only, and which others there are.

    Args:
        s: a window of at most `MOST_TAPS` pixels.
        codes: uint8[B, H, W, segments] of the input.
        cover: bool[B, Ho, Wo], the outputs that are asked for.
        kernel: [taps, C, O].
        bias: float32[O], or None.
        base: the result's dtype [B, Ho, Wo, O], or None: zeros.

    Returns:
        The result at covered outputs that are not near, base's elsewhere (at near outputs,
        anything without a base), [B, Ho, Wo, O]; and near, bool[B, Ho, Wo]: covered outputs that
        are to be multiplied, all that see an undecided pixel among them.
    """
    return _known(s, codes, cover, kernel, bias, base)


@differentiable()
def _known(s: Known, *given: jax.Array | None) -> Any:
    return _batched(s)(*given)


def _forward(s: Known, *given: Any) -> Any:
    out, near = _batched(s)(*given)
    codes, cover, kernel, bias, base = Given(*given)
    return (out, near), (codes, cover, near, kernel, bias, Fact(base is not None))


def _backward(s: Known, saved: Any, g: tuple[jax.Array, jax.Array]) -> Any:
    """One product: the windows' bits with the cotangents, in a fixed order."""
    codes, cover, near, kernel, bias, based = saved
    rows = g[0].reshape(-1, kernel.shape[2])
    far = (cover & ~near).reshape(-1, 1)
    _, back = jax.vjp(functools.partial(_values, s, codes), kernel, bias)
    dkernel, dbias = back(jnp.where(far, rows, jnp.zeros_like(rows)))
    left = jnp.where(cover[..., None], jnp.zeros_like(g[0]), g[0]) if based.value else None
    return None, None, dkernel, dbias, left


def _values(s: Known, codes: jax.Array, kernel: jax.Array, bias: Any) -> jax.Array:
    """[B * Ho * Wo, O]: the result at the outputs that see decided pixels only."""
    _, full = decided_pixels(codes)
    bits = windows_of(s.conv, full, s.window).reshape(-1, 1) >> np.arange(len(kernel))[None] & 1
    found = jnp.dot(bits.astype(jnp.float32), tap_sums(kernel, s.upper), precision="highest")
    return finish(s.conv, found, bias)


def _tangent(s: Known, saved: Any, tangents: Any) -> Any:
    codes, cover, near, kernel, bias, _ = saved
    _, _, dkernel, dbias, dbase = tangents
    shape, nothing = (*cover.shape, kernel.shape[2]), jnp.zeros((), s.conv.out_dtype)
    found = tangent_of(functools.partial(_values, s, codes), (kernel, bias), (dkernel, dbias))
    left = nothing if dbase is None else jnp.where(cover[..., None], nothing, dbase)
    far = (cover & ~near)[..., None]
    moved = jnp.where(far, nothing if found is None else found.reshape(shape), left)
    return jnp.broadcast_to(moved, shape), None


_known.defrules(_forward, _tangent, _backward)


#: A mesh splits images.
_MESH_RULE = Rule(
    "masked_conv",
    ("b . . .", "b . .", ". . .", ".", "b . . ."),
    ("b . . .", "b . ."),
    ("b",),
    ("recorder", "mask", "kernel", "bias", "base"),
    why={".": "with a recorder a mesh splits the images only"},
)


def _batched(s: Known) -> Any:
    """The call with its vmap rule: batches are images; for kernels of their own, a loop."""

    @custom_vmap
    def run(*given: jax.Array | None):
        alone = dispatch(
            "known_windows",
            s.conv.implementation,
            cuda=functools.partial(_native, s),
            cpu=functools.partial(_reference, s),
            reference=functools.partial(_reference, s),
        )
        return partitioned(_MESH_RULE, alone, lambda _, *part: alone(*part))(*given)

    @run.def_vmap
    def rule(axis_size: int, in_batched: Sequence[bool], *given: Any):
        if any(jax.tree.leaves(in_batched[2:4])):
            return loop_over(_batched(s), given, in_batched), (True, True)
        codes, cover, kernel, bias, base = Given(*given)
        each = entries(codes, in_batched[0])
        codes = fold(codes, in_batched[0], axis_size)
        cover = fold(cover, in_batched[1], axis_size)
        base = None if base is None else fold(base, in_batched[4], axis_size)
        out, near = _batched(s)(codes, cover, kernel, bias, base)
        return (unfold(out, axis_size, each), unfold(near, axis_size, each)), (True, True)

    return run


def _native(s: Known, *given: Any) -> Any:
    codes, cover, kernel, bias, base = Given(*given)
    p, geo, outputs = s.conv, s.conv.geometry, kernel.shape[2]
    shape = (*cover.shape, outputs)
    out, near, _ = ffi_call(
        "jaxsparse_known_windows",
        [
            (shape, p.out_dtype),
            (cover.shape, np.bool_),
            ((1 << len(kernel), outputs), p.out_dtype),
        ],
        absent(base, p.out_dtype, (0, *shape[1:])),
        codes,
        cover,
        kernel,
        absent(bias, np.float32),
        input_output_aliases=None if base is None else {0: 0},
        kernel_h=s.window[0],
        kernel_w=s.window[1],
        stride_h=geo.strides[0],
        stride_w=geo.strides[1],
        pad_top=geo.padding[0][0],
        pad_left=geo.padding[1][0],
        dilation_h=geo.dilation[0],
        dilation_w=geo.dilation[1],
        activation=CODES[p.activation],
        upper=float(s.upper),
        most_near=MOST_NEAR,
    )
    return out, near


def _reference(s: Known, *given: Any) -> Any:
    codes, cover, kernel, bias, base = Given(*given)
    zero, full = decided_pixels(codes)
    near = cover & seen_from(s.conv, ~(zero | full), s.window)
    taps, outputs = len(kernel), kernel.shape[2]
    bits = np.arange(1 << taps)[:, None] >> np.arange(taps) & 1
    sums = jnp.dot(jnp.asarray(bits, jnp.float32), tap_sums(kernel, s.upper), precision="highest")
    table = finish(s.conv, sums, bias)
    select = jnp.where(near, -1, windows_of(s.conv, full, s.window))
    if base is None:  # one entry more, of zeros
        table = jnp.concatenate([table, jnp.zeros((1, outputs), table.dtype)])
        select = jnp.where(cover, select, len(bits))
    else:
        select = jnp.where(cover, select, -1)
    flat = None if base is None else base.reshape(-1, outputs)
    rows = fill_rows(flat, table, select.reshape(-1).astype(jnp.int32), s.conv.implementation)
    return rows.reshape(*near.shape, outputs), near


def tap_sums(kernel: jax.Array, upper: float) -> jax.Array:
    """What each tap of kernel [taps, C, O] adds at the bound: float32[taps, O]."""
    return upper * kernel.astype(jnp.float32).sum(1)


def finish(p: ConvParams, sums: jax.Array, bias: jax.Array | None) -> jax.Array:
    """Sums, float32[..., O], as the convolution's epilogue leaves them."""
    if bias is not None:
        sums = sums + bias
    return ACTIVATIONS[p.activation](sums).astype(p.out_dtype)


def decided_pixels(codes: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Which pixels are zero in all channels, and which at the bound: bool[B, H, W] each. Without
    codes none is.
    """
    if codes.shape[-1] == 0:
        none = jnp.zeros(codes.shape[:-1], bool)
        return none, none
    return (codes == ZERO).all(-1), (codes == UPPER).all(-1)


def windows_of(p: ConvParams, pixels: jax.Array, window: tuple[int, int]) -> jax.Array:
    """int32[B, Ho, Wo]: bit t says whether the input's pixel at tap t is one of `pixels`."""
    geo = p.geometry
    pads = [(0, 0, 0), *((low, high, 0) for low, high in geo.padding)]
    padded = jax.lax.pad(pixels.astype(jnp.int32), 0, pads)
    rows, columns = geo.out_size(pixels.shape[1:], window)
    found = jnp.zeros((pixels.shape[0], rows, columns), jnp.int32)
    for t, (ky, kx) in enumerate(np.ndindex(*window)):
        top, left = ky * geo.dilation[0], kx * geo.dilation[1]
        bottom = top + (rows - 1) * geo.strides[0] + 1
        right = left + (columns - 1) * geo.strides[1] + 1
        part = padded[:, top : bottom : geo.strides[0], left : right : geo.strides[1]]
        found = found | part << t
    return found


def seen_from(p: ConvParams, pixels: jax.Array, window: tuple[int, int]) -> jax.Array:
    """bool[B, Ho, Wo]: the outputs with a tap on one of the input's `pixels`."""
    geo = p.geometry
    pads = [(0, 0, 0), *((low, high, 0) for low, high in geo.padding)]
    return jax.lax.reduce_window(
        jax.lax.pad(pixels, False, pads),
        False,
        jax.lax.bitwise_or,
        (1, *window),
        (1, *geo.strides),
        "VALID",
        window_dilation=(1, *geo.dilation),
    )
