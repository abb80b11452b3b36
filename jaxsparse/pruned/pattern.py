"""`Pattern`: which weights are kept. Static, hashable by content: it is part of a jit key, never an
operand.
"""

from __future__ import annotations

import functools
import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

MAX_ENTRIES = 2**31 - 1
#: Taps of a window: what a call takes grows with them, so a file of a few bytes may not name more.
MAX_TAPS = 2**16


class Pattern:
    """The kept entries of a weight, as CSR with one row per *output*.

    Attributes:
        n_in: columns: inputs of a product; `channels * kh * kw` of a convolution, whose column of
            channel c and tap (ky, kx) is `(c * kh + ky) * kw + kx`.
        n_out: rows.
        indptr: int32[n_out + 1].
        indices: int32[entries], ascending in each row.
        window: (kh, kw) of a convolution, None for a product.
        groups: of a convolution: how its kernel is stored (the columns are of all channels).
        digest: names the content.

    Raises:
        ValueError: when the arrays are not such a pattern, saying what is wrong.
    """

    def __init__(
        self,
        n_in: int,
        n_out: int,
        indptr: npt.ArrayLike,
        indices: npt.ArrayLike,
        window: tuple[int, int] | None = None,
        groups: int = 1,
    ) -> None:
        self.n_in, self.n_out, self.window, self.groups = n_in, n_out, window, groups
        self.indptr = _int32("indptr", indptr)
        self.indices = _int32("indices", indices)
        _check(self)
        self.indptr.flags.writeable = self.indices.flags.writeable = False
        facts = np.asarray([n_in, n_out, *(window or (0, 0)), groups], np.int64)
        parts = [a.tobytes() for a in (facts, self.indptr, self.indices)]
        self.digest = hashlib.sha256(b"".join(parts)).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        window = f", window {self.window}" if self.window else ""
        return f"Pattern({self.n_in} -> {self.n_out}{window}, {self.entries} kept)"

    @property
    def entries(self) -> int:
        """How many weights are kept."""
        return len(self.indices)

    @property
    def size(self) -> int:
        """How many weights there would be: those of a grouped kernel count once."""
        return self.n_in // self.groups * self.n_out

    @property
    def density(self) -> float:
        """Kept over all; 0 for an empty weight."""
        return self.entries / self.size if self.size else 0.0

    @property
    def taps(self) -> int:
        """Taps of the window; 1 of a product."""
        return self.window[0] * self.window[1] if self.window else 1

    @property
    def kernel_shape(self) -> tuple[int, int, int, int]:
        """[kh, kw, C/groups, O] of the dense kernel of a convolution."""
        kh, kw = self.window or (1, 1)
        return kh, kw, self.channels // self.groups, self.n_out

    @property
    def channels(self) -> int:
        """Input channels: columns without the taps."""
        return self.n_in // self.taps

    @functools.cached_property
    def lengths(self) -> NDArray[np.int64]:
        """int64[n_out]: kept weights of each output."""
        return np.diff(self.indptr).astype(np.int64)

    @functools.cached_property
    def rows(self) -> NDArray[np.int32]:
        """int32[entries]: the output of each entry."""
        return np.repeat(np.arange(self.n_out, dtype=np.int32), self.lengths)

    def taps_of(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
        """(channel, ky, kx) of each entry of a convolution."""
        kh, kw = self.window or (1, 1)
        channel, tap = np.divmod(self.indices, kh * kw)
        ky, kx = np.divmod(tap, kw)
        return channel, ky, kx

    @functools.cached_property
    def transposed(self) -> tuple[Pattern, NDArray[np.int32]]:
        """The pattern of the gradient for the input (inputs and outputs exchanged, the window
        flipped), and which entry of this one each of its entries is.
        """
        if self.window is None:
            rows, columns, n_in = self.indices, self.rows, self.n_out
        else:
            kh, kw = self.window
            rows, ky, kx = self.taps_of()
            columns = (self.rows * kh + (kh - 1 - ky)) * kw + (kw - 1 - kx)
            n_in = self.n_out * kh * kw
        n_out = self.channels
        order = np.lexsort((columns, rows))
        indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n_out))])
        back = Pattern(n_in, n_out, indptr, columns[order], self.window, self.groups)
        return back, order.astype(np.int32)


def _int32(name: str, given: Any) -> NDArray[np.int32]:
    """A copy of `given`, which no other code can write to."""
    array = np.asarray(given)
    if array.size and array.dtype.kind not in "iu":
        raise ValueError(f"pattern: {name} is {array.dtype}; it takes integers")
    if array.size and (int(array.min()) < 0 or int(array.max()) > MAX_ENTRIES):
        raise ValueError(f"pattern: {name} holds a number out of range")
    return np.array(array, np.int32, order="C")


def _check(p: Pattern) -> None:
    """Everything that an executor relies on."""
    window: Any = p.window or (1, 1)
    for name, value in (("n_in", p.n_in), ("n_out", p.n_out), ("groups", p.groups - 1)):
        if not 0 <= value < 2**31:
            raise ValueError(f"pattern: {name} is {value}, out of range")
    if len(window) != 2 or min(window) < 1:
        raise ValueError(f"pattern: a window {p.window}; it needs two sides of 1 or more")
    if p.taps > MAX_TAPS:
        raise ValueError(f"pattern: a window {p.window}; it takes {MAX_TAPS} taps at most")
    if p.n_in % p.taps:
        raise ValueError(f"pattern: {p.n_in} columns are not a multiple of a window {p.window}")
    if p.indptr.shape != (p.n_out + 1,) or p.indices.ndim != 1:
        raise ValueError(f"pattern: indptr has shape {p.indptr.shape}; it needs ({p.n_out + 1},)")
    if p.indptr[0] != 0 or p.indptr[-1] != len(p.indices) or (np.diff(p.indptr) < 0).any():
        raise ValueError("pattern: indptr does not ascend from 0 to the number of entries")
    if len(p.indices) == 0:
        return
    if p.indices.min() < 0 or p.indices.max() >= p.n_in:
        raise ValueError(f"pattern: an index is out of range; it needs 0 <= index < {p.n_in}")
    ascends = np.diff(p.indices) > 0
    ascends[p.indptr[1:-1][(p.indptr[1:-1] > 0) & (p.indptr[1:-1] < len(p.indices))] - 1] = True
    if not ascends.all():
        raise ValueError("pattern: the indices of a row do not ascend")
