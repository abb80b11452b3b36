"""How a mesh splits a convolution: by the images; by the outputs O; by the channels C where nothing
follows the sum over them; a 1x1 window also by rows and columns. A shard lists the active tiles of
its own images itself, from the words of their mask.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax

from jaxsparse.bits import unpack_mask
from jaxsparse.core.geometry import Geometry
from jaxsparse.ffi import Rule, Shards, partitioned
from jaxsparse.index import TileIndex
from jaxsparse.index.chosen import ChosenIndex
from jaxsparse.index.mask_index import MaskIndex
from jaxsparse.index.types import cover_words, index_of_words
from jaxsparse.ops.masked_conv.operands import Channels, Operands
from jaxsparse.ops.masked_conv.params import ConvParams
from jaxsparse.ops.masked_conv.run import index_of_mask, on_any

_SPATIAL = "an output reads pixels around its own, so every shard needs whole images"
_GROUPS = "with groups the channels are not split, so every shard needs them all"
_EPILOGUE = (
    "a bias, an activation, a base or a residual comes after the sum over the channels, so every "
    "shard needs them all"
)
#: Of the ops that are a convolution: the user's names.
_NAMES = {"masked_dense": {"kernel": "w"}}


def split_conv(p: ConvParams, operands: Operands) -> Callable[[], jax.Array]:
    """The call with these operands; on a mesh that of each shard, which has its own channels."""
    x, kernel, index, bias, base, residual, x_words, channels = operands
    pixels, words = _pixels(p, kernel.shape[:2], index)
    linear = p.activation is None and bias is None and base is None and residual is None
    rule = Rule(
        p.called,
        (
            f"b {pixels[0]} c",
            ". . c o",
            "o",
            f"b {pixels[1]} o",
            f"b {pixels[1]} o",
            "c",
            "o",
            f"b {words[0]}",
            f"b {words[1]}",
            f"b {pixels[1]}",
            None,
        ),
        (f"b {pixels[1]} o",),
        _splits(p, pixels, linear),
        (
            *_names(p, "x", "kernel", "bias", "base", "residual", "in_channels", "out_channels"),
            *_names(p, "x", "mask", "mask", "mask"),
        ),
        from_end=p.called == "masked_dense",
        dtype=p.out_dtype,
        why=_why(p, linear),
    )

    def pack(*given: Any) -> Operands:
        x, kernel, bias, base, residual, *some, x_words, _, _, index = given
        return Operands(x, kernel, index, bias, base, residual, x_words, Channels(*some))

    def local(shards: Shards, *given: Any) -> jax.Array:
        x, kernel, bias, base, residual, *some, x_words, words, mask, _ = given
        part = dataclasses.replace(p, out_dtype="float32") if shards.count("c") > 1 else p
        here = _index(p, x, kernel, index, words, mask, shards, fills=base is None)
        masks = Channels(*some)
        return on_any(part, masks)(x, kernel, here, bias, base, residual, x_words, masks)

    given = x, kernel, bias, base, residual, *channels, x_words, *_mask(index), index
    return functools.partial(partitioned(rule, on_any(p, channels), local, pack=pack), *given)


def split_dkernel(
    p: ConvParams,
    kernel_hw: tuple[int, int],
    run: Callable[..., jax.Array],
    x: jax.Array,
    g: jax.Array,
    index: TileIndex,
    channels: Channels,
) -> Callable[[], jax.Array]:
    """The call of `run`, the kernel's gradient, with these arrays; on a mesh the sum of that of
    each shard's images.
    """
    pixels, words = _pixels(p, kernel_hw, index)
    rule = Rule(
        f"{p.called}'s gradient for kernel",
        (f"b {pixels[0]} c", f"b {pixels[1]} o", "c", "o", f"b {words[1]}", f"b {pixels[1]}", None),
        (". . c o",),
        _splits(p, pixels, linear=True),
        (
            *_names(p, "x", "the result's cotangent", "in_channels", "out_channels"),
            *_names(p, "mask", "mask", "mask"),
        ),
        from_end=p.called == "masked_dense",
        why=_why(p, linear=True),
    )

    def pack(*given: Any) -> tuple[Any, ...]:
        x, g, *some, _, _, index = given
        return x, g, index, Channels(*some)

    def local(shards: Shards, *given: Any) -> jax.Array:
        x, g, *some, words, mask, _ = given
        kernel = jax.ShapeDtypeStruct((*kernel_hw, x.shape[3], g.shape[3]), x.dtype)
        here = _index(p, x, kernel, index, words, mask, shards, fills=True)
        return run(x, g, here, Channels(*some))

    split = partitioned(rule, run, local, pack=pack)
    return functools.partial(split, x, g, *channels, *_mask(index), index)


def _names(p: ConvParams, *names: str) -> tuple[str, ...]:
    theirs = _NAMES.get(p.called, {})
    return tuple(theirs.get(name, name) for name in names)


def _pixels(
    p: ConvParams, window: tuple[int, ...], index: TileIndex
) -> tuple[tuple[str, str], tuple[str, str]]:
    """The factors of the two axes of pixels, of the input and of the output, and of their words.

    A window of one pixel joins them: rows are split, and columns by whole words.
    """
    geo = p.geometry
    plain = Geometry((1, 1), ((0, 0), (0, 0)), geo.dilation, (1, 1), geo.groups)
    if tuple(window) != (1, 1) or geo != plain:
        return (". .", ". ."), (". .", ". .")
    if index.shape[2] % 32:
        return ("h .", "h ."), ("h .", "h .")
    return ("h (w bit)", "h (w bit)"), ("h w", "h w")


def _splits(p: ConvParams, pixels: tuple[str, str], linear: bool) -> tuple[str, ...]:
    own = [name for name in ("h", "w") if name in pixels[0]]
    if p.geometry.groups == 1:
        own += ["o", "c"] if linear else ["o"]
    return ("b", *own)


def _why(p: ConvParams, linear: bool) -> dict[str, str]:
    if p.geometry.groups != 1:
        return {".": _SPATIAL, "c": _GROUPS, "o": _GROUPS}
    return {".": _SPATIAL} | ({} if linear else {"c": _EPILOGUE})


def _mask(index: TileIndex) -> tuple[jax.Array, jax.Array | None]:
    """What says which outputs are computed: words, and the mask itself where the index has it."""
    return cover_words(index), index.mask if isinstance(index, MaskIndex) else None


def _index(
    p: ConvParams,
    x: jax.Array,
    kernel: Any,
    like: TileIndex,
    words: jax.Array,
    mask: jax.Array | None,
    shards: Shards,
    *,
    fills: bool,
) -> TileIndex:
    """The index of a shard's own mask, of the kind of that of all images."""
    width = like.shape[2] // shards.count("w")
    if isinstance(like, (ChosenIndex, MaskIndex)):
        mask = unpack_mask(words, width) if mask is None else mask
        return index_of_mask(p, x, kernel, mask, fills=fills)
    return index_of_words(
        words, width, like.tile, align=like.align, implementation=p.implementation
    )
