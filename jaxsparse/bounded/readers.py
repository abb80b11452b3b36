"""Readers of the challenge's TSV files. A broken line is refused by its number."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


def read_layer(path: str | Path, neurons: int) -> csr_matrix:
    """A layer's TSV file (input, output, weight a line; counted from 1) as float32 CSR [in, out].

    Args:
        path: the file.
        neurons: the layer's width.

    Raises:
        ValueError: naming the file, the line's number and what is wrong with it.
    """
    import scipy.sparse as sp

    table = _read(path, 3, (neurons, neurons, None), 2)
    rows, columns = table[:, 0].astype(np.int64) - 1, table[:, 1].astype(np.int64) - 1
    return sp.csr_matrix((table[:, 2].astype(np.float32), (rows, columns)), (neurons, neurons))


def read_images(path: str | Path, neurons: int, count: int = 60000) -> NDArray[np.float32]:
    """An input TSV file (image, neuron, value a line; counted from 1) as float32[count, neurons].

    Args:
        path: the file.
        neurons: pixels of an image.
        count: images in the set.

    Raises:
        ValueError: naming the file, the line's number and what is wrong with it.
    """
    table = _read(path, 3, (count, neurons, None), 2)
    values = np.zeros((count, neurons), np.float32)
    values[table[:, 0].astype(np.int64) - 1, table[:, 1].astype(np.int64) - 1] = table[:, 2]
    return values


def read_categories(path: str | Path, count: int = 60000) -> NDArray[np.int32]:
    """A TSV file of true categories (an image's number a line, from 1) as int32[alive], from 0.

    Args:
        path: the file.
        count: images in the set.

    Raises:
        ValueError: naming the file, the line's number and what is wrong with it.
    """
    return _read(path, 1, (count,), 1)[:, 0].astype(np.int32) - 1


def _read(path: str | Path, fields: int, limits: tuple[int | None, ...], key: int) -> np.ndarray:
    """float64[lines, fields]; a field with a limit is a whole number from 1 to it, one without
    finite as float32, and no two lines have the same first `key` fields."""
    table = _read_fast(path, fields)
    if table is None:
        table = _read_lines(path, fields)
    for column, limit in enumerate(limits):
        values = table[:, column]
        good = np.abs(values) <= np.finfo(np.float32).max
        if limit is not None:
            good &= (values >= 1) & (values <= limit) & (values == np.floor(values))
        if not good.all():
            line = int(np.argmin(good)) + 1
            need = (
                "a finite number (float32)"
                if limit is None
                else f"a whole number from 1 to {limit}"
            )
            raise ValueError(
                f"{path}, line {line}: field {column + 1} is {values[line - 1]:g}; it takes {need}"
            )
    keys = np.zeros(len(table), np.int64)
    for column, limit in zip(table.T[:key], limits, strict=False):
        keys = keys * (int(limit or 0) + 1) + column.astype(np.int64)
    _, first, place = np.unique(keys, return_index=True, return_inverse=True)
    again = np.flatnonzero(first[place] != np.arange(len(table)))
    if len(again):
        line, earlier = int(again[0]), int(first[place[again[0]]])
        raise ValueError(f"{path}, line {line + 1}: the same as line {earlier + 1} over again")
    return table


def _read_fast(path: str | Path, fields: int) -> np.ndarray | None:
    """The whole file at once; None when some line needs a closer look."""
    text = Path(path).read_text(errors="replace")
    lines = text.splitlines()
    if not lines:
        return np.zeros((0, fields))
    if "_" in text or not text.strip():  # python's float takes them; loadtxt warns of no data
        return None
    try:
        table = np.loadtxt(lines, ndmin=2, comments=None)
    except ValueError:
        return None
    return table if table.shape == (len(lines), fields) else None


def _read_lines(path: str | Path, fields: int) -> np.ndarray:
    rows = []
    for number, line in enumerate(Path(path).read_text(errors="replace").splitlines(), 1):
        parts = line.split()
        if len(parts) != fields:
            raise ValueError(f"{path}, line {number}: {len(parts)} fields; it takes {fields}")
        try:
            rows.append([float(p.replace("_", "?")) for p in parts])
        except ValueError:
            raise ValueError(f"{path}, line {number}: {line.strip()!r} holds no numbers") from None
    return np.asarray(rows)
