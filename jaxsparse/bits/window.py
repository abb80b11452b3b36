"""Windows over packed masks: OR along rows and along bits, every n-th of them, and n apart. Plain
jnp on whole words, [..., rows, words].
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxsparse.bits.pack import pack_mask, unpack_mask, word_count

#: Halves of a word that move together as bits close up: 1, 2, 4, 8 bits at a time.
_STEPS = tuple(
    (n, np.uint32(mask))
    for n, mask in ((1, 0x33333333), (2, 0x0F0F0F0F), (4, 0x00FF00FF), (8, 0x0000FFFF))
)
_EVEN = np.uint32(0x55555555)


def any_rows(words: jax.Array, taps: int, dilation: int, low: int, length: int) -> jax.Array:
    """Row i of the result is the OR of the rows i - low + k * dilation, k < taps; `length` rows."""
    reach = length + (taps - 1) * dilation
    found = _shift_rows(words, -low, reach)
    for step in _doublings(taps):
        found = found | _shift_rows(found, step * dilation, reach)
    return found[..., :length, :]


def any_bits(words: jax.Array, taps: int, dilation: int, low: int, length: int) -> jax.Array:
    """The same along the bits of a row; `length` bits, those past them are undefined."""
    reach = word_count(length + (taps - 1) * dilation)
    found = _shift_bits(words, -low, reach)
    for step in _doublings(taps):
        found = found | _shift_bits(found, step * dilation, reach)
    return found[..., : word_count(length)]


def every_bit(words: jax.Array, stride: int, length: int) -> jax.Array:
    """Bit i of the result is bit i * stride; `length` bits."""
    while stride % 2 == 0:
        words = _close_up(words)
        stride //= 2
    if stride > 1:
        bits = unpack_mask(words, 32 * words.shape[-1])[..., ::stride]
        words = pack_mask(bits)
    return words[..., : word_count(length)]


def spread_bits(words: jax.Array, stride: int, width: int) -> jax.Array:
    """Bit i * stride of the result is bit i of `width`; the bits between are zero."""
    even = 1
    while stride % 2 == 0:
        even, stride = 2 * even, stride // 2
    if stride > 1:
        bits = unpack_mask(words, width)
        none = [(0, 0, 0)] * (bits.ndim - 1)
        words = pack_mask(lax.pad(bits, np.False_, [*none, (0, 0, stride - 1)]))
    while even > 1:
        words, even = _spread_by_two(words), even // 2
    return words


def _doublings(taps: int) -> list[int]:
    """By how many taps a window of one is shifted and OR-ed with itself until it has `taps`."""
    steps, have = [], 1
    while have < taps:
        steps.append(min(have, taps - have))
        have += steps[-1]
    return steps


def _shift_rows(words: jax.Array, by: int, length: int) -> jax.Array:
    """Row i of the result is row i + by, or zero; `length` rows."""
    none = [(0, 0, 0)] * (words.ndim - 2)
    room = (-by, length + by - words.shape[-2], 0)
    return lax.pad(words, np.uint32(0), [*none, room, (0, 0, 0)])


def _shift_bits(words: jax.Array, by: int, length: int) -> jax.Array:
    """Bit i of the result is bit i + by, or zero; `length` words."""
    whole, part = divmod(by, 32)
    none = [(0, 0, 0)] * (words.ndim - 1)

    def moved(whole: int) -> jax.Array:
        room = (-whole, length + whole - words.shape[-1], 0)
        return lax.pad(words, np.uint32(0), [*none, room])

    if part == 0:
        return moved(whole)
    return (moved(whole) >> np.uint32(part)) | (moved(whole + 1) << np.uint32(32 - part))


def _close_up(words: jax.Array) -> jax.Array:
    """Every second bit, from the first."""
    words = words & _EVEN
    for n, mask in _STEPS:
        words = (words | (words >> np.uint32(n))) & mask
    odd = words.shape[-1] % 2
    none = [(0, 0, 0)] * (words.ndim - 1)
    words = lax.pad(words, np.uint32(0), [*none, (0, odd, 0)])
    return words[..., 0::2] | (words[..., 1::2] << np.uint32(16))


def _spread_by_two(words: jax.Array) -> jax.Array:
    """Bit 2i of the result is bit i."""
    halves = jnp.stack([words & np.uint32(0xFFFF), words >> np.uint32(16)], axis=-1)
    words = halves.reshape(*words.shape[:-1], 2 * words.shape[-1])
    masks = [_EVEN, *(mask for _, mask in _STEPS)]
    for (n, _), mask in zip(reversed(_STEPS), reversed(masks[:-1]), strict=True):
        words = (words | (words << np.uint32(n))) & mask
    return words
