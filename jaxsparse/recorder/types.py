"""`Recorder`: one code per segment of activations, exact for any values.

The idea that a flag per segment replaces the reads and writes of its elements is GLARE's (Jiang,
Huang, Ho: Accelerating Sparse DNN Inference Kernels with Global Memory Access Reduction, 2024).
Here the flag has three states, and rows whose every segment is decided can be proven to stay so
(`jaxsparse/bounded/certify.py`).
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, UInt8

from jaxsparse.core.contract import SegmentCode
from jaxsparse.core.variables import takes_variables

MIXED = int(SegmentCode.MIXED)
ZERO = int(SegmentCode.ZERO)
UPPER = int(SegmentCode.UPPER)


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=("codes",),
    meta_fields=("segment", "upper", "stored"),
)
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Recorder:
    """What is known of each segment of values [batch, n] (a convolution's: [B, H, W, C]).

    Attributes:
        codes: uint8[batch, ceil(n / segment)], or [batch, 0] where nothing is known: `MIXED` (0),
            or any number but these: the stored values count; `ZERO` (1): the segment is all zero;
            `UPPER` (2): it is all `upper`. Under a set code the stored values are undefined and
            never read, unless `stored`.
        segment: elements of a segment; the last one of a row may be shorter.
        upper: the bound that `UPPER` stands for.
        stored: whether the values under a set code are nevertheless in memory and may be read: a
            convolution writes all of its result.
    """

    codes: UInt8[Array, "... segments"]
    segment: int
    upper: float
    stored: bool = False

    def spread(self, n: int) -> UInt8[Array, "... n"]:
        """The code of each element, uint8[..., n]."""
        if self.codes.shape[-1] == 0:
            return jnp.full((*self.codes.shape[:-1], n), MIXED, jnp.uint8)
        return _spread(self.codes, self.segment, n)

    def fill(self, values: Float[ArrayLike, "... n"]) -> Float[Array, "... n"]:
        """`values` with every element under a set code replaced by what the code says."""
        values = jnp.asarray(values)
        if 0 in (values.shape[-1], self.codes.shape[-1]):
            return values
        return _fill(self.codes, values, np.asarray(self.upper, values.dtype), self.segment)

    def __repr__(self) -> str:
        if not hasattr(self.codes, "shape"):  # a pytree of something else than arrays
            return f"Recorder({self.codes!r}, segment={self.segment})"
        codes = f"{self.codes.dtype}{list(self.codes.shape)}"
        kept = ", stored" if self.stored else ""
        return f"Recorder({codes}, a code for {self.segment} values, upper={self.upper:g}{kept})"

    def share(self, code: int) -> Float[Array, ""]:
        """The share of segments that hold `code`, float32[]; without codes all are mixed."""
        if self.codes.size == 0:
            return jnp.asarray(code == MIXED, jnp.float32)
        return jnp.mean((self.codes == code).astype(jnp.float32))


# Each of these is one program, also outside of jit.


@functools.partial(jax.jit, static_argnums=(1, 2))
def _spread(codes: jax.Array, segment: int, n: int) -> jax.Array:
    return jnp.repeat(codes, segment, axis=-1)[..., :n]


@functools.partial(jax.jit, static_argnums=3)
def _fill(codes: jax.Array, values: jax.Array, upper: jax.Array, segment: int) -> jax.Array:
    codes = _spread(codes, segment, values.shape[-1])
    values = jnp.where(codes == UPPER, upper, values)
    return jnp.where(codes == ZERO, jnp.zeros((), values.dtype), values)


@functools.partial(jax.jit, static_argnums=2)
def _probe(values: jax.Array, upper: jax.Array, segment: int) -> jax.Array:
    *leading, n = values.shape
    segments = segment_count(n, segment)
    short = segments * segment - n

    def every(hit: jax.Array) -> jax.Array:
        pads = [(0, 0)] * len(leading) + [(0, short)]
        padded = jnp.pad(hit, pads, constant_values=True)
        return padded.reshape(*leading, segments, segment).all(-1)

    codes = jnp.where(every(values == upper), jnp.uint8(UPPER), jnp.uint8(MIXED))
    return jnp.where(every(values == 0), jnp.uint8(ZERO), codes)


def check_recorder(name: str, recorder: Any, shape: tuple[int, ...]) -> None:
    """Whether `recorder` is one of values `name` of a shape [..., n].

    Raises:
        TypeError, ValueError: naming what came and what is needed.
    """
    if not isinstance(recorder, Recorder):
        raise TypeError(f"recorder must be a js.recorder.Recorder, not {type(recorder).__name__}")
    codes, segment, upper = recorder.codes, recorder.segment, recorder.upper
    if not isinstance(segment, (int, np.integer)) or segment < 1:
        raise ValueError(f"recorder has segment={segment!r}; it takes a positive int")
    if not np.isfinite(upper) or upper < 0:
        raise ValueError(f"recorder has upper={upper!r}; it takes a finite number >= 0")
    if getattr(codes, "dtype", None) != np.uint8:
        kind = getattr(codes, "dtype", type(codes).__name__)
        raise TypeError(f"recorder has codes of {kind}; they are uint8")
    need = (*shape[:-1], segment_count(shape[-1], segment))
    if codes.shape != need and codes.shape != (*shape[:-1], 0):
        raise ValueError(f"recorder has codes {codes.shape}; {name} {shape} needs {need}")


def segment_count(n: int, segment: int) -> int:
    """How many segments a row of n elements has."""
    return -(-n // segment)


@takes_variables
def probe(values: Float[ArrayLike, "... n"], segment: int, upper: float) -> Recorder:
    """The exact recorder of `values` [..., n]: a code is set when every element of the segment says
    so."""
    values = jnp.asarray(values)
    codes = _probe(values, np.asarray(upper, values.dtype), segment)
    return Recorder(codes, segment, upper)
