"""What the operations mean, in numpy and float64, by the definition and without any tiles."""

from typing import Any

import numpy as np

Pads = tuple[tuple[int, int], tuple[int, int]]
Geometry = tuple[tuple[int, int], Pads, tuple[int, int]]


def activated(y: np.ndarray, name: str | None) -> np.ndarray:
    """The activations of the epilogues; gelu is the tanh form."""
    if name in ("relu", "relu6"):
        return np.clip(y, 0, 6 if name == "relu6" else None)
    if name == "silu":
        return y / (1 + np.exp(-y))
    if name == "gelu":
        return 0.5 * y * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y**3)))
    return y


def edges(y: np.ndarray, name: str | None) -> list[np.ndarray]:
    """Of sums before an activation: values that are 0 where the activation has no derivative."""
    return {"relu": [y], "relu6": [y, y - 6]}.get(name or "", [])


def windows(shape: tuple[int, ...], window: tuple[int, int], geometry: Geometry) -> tuple[int, int]:
    """The outputs' height and width."""
    strides, pads, dilation = geometry
    spans = [(n - 1) * d + 1 for n, d in zip(window, dilation, strict=True)]
    sizes = zip((n + sum(p) for n, p in zip(shape, pads, strict=True)), spans, strides, strict=True)
    height, width = (max((n - span) // s + 1, 0) for n, span, s in sizes)
    return height, width


def taps(x: np.ndarray, window: tuple[int, int], geometry: Geometry) -> Any:
    """For each place in the window, the values there: ((ky, kx), [B, Ho, Wo, ...]), zeros in the
    padding.
    """
    strides, pads, dilation = geometry
    height, width = windows(x.shape[1:3], window, geometry)
    padded = np.pad(x, ((0, 0), *pads, *[(0, 0)] * (x.ndim - 3)))
    for ky, kx in np.ndindex(*window):
        top, left = ky * dilation[0], kx * dilation[1]
        rows = slice(top, top + (height - 1) * strides[0] + 1, strides[0])
        columns = slice(left, left + (width - 1) * strides[1] + 1, strides[1])
        yield (ky, kx), padded[:, rows, columns]


def convolution(x: np.ndarray, kernel: np.ndarray, geometry: Geometry, groups: int) -> np.ndarray:
    """NHWC by HWIO, a tap at a time."""
    outputs = kernel.shape[3]
    out = np.zeros((x.shape[0], *windows(x.shape[1:3], kernel.shape[:2], geometry), outputs))
    if 0 in out.shape:
        return out
    for (ky, kx), values in taps(x, kernel.shape[:2], geometry):
        taken = values.reshape(*out.shape[:3], groups, -1)
        weights = kernel[ky, kx].reshape(-1, groups, outputs // groups)
        out += np.einsum("bhwgc,cgo->bhwgo", taken, weights, optimize=True).reshape(out.shape)
    return out


def reached(mask: np.ndarray, window: tuple[int, int], geometry: Geometry) -> np.ndarray:
    """The outputs whose window overlaps the mask."""
    found = np.zeros((mask.shape[0], *windows(mask.shape[1:], window, geometry)), bool)
    if found.size:
        for _, values in taps(mask, window, geometry):
            found |= values
    return found


def needed(mask: np.ndarray, shape: Any, window: tuple[int, int], geometry: Geometry) -> np.ndarray:
    """The inputs that outputs of the mask read; `shape`: of the input's height and width."""
    strides, (rows, columns), dilation = geometry
    out = np.zeros(
        (mask.shape[0], *(n + sum(p) for n, p in zip(shape, (rows, columns), strict=True))), bool
    )
    for b, y, x in np.argwhere(mask):
        for ky, kx in np.ndindex(*window):
            out[b, y * strides[0] + ky * dilation[0], x * strides[1] + kx * dilation[1]] = True
    return out[:, rows[0] : rows[0] + shape[0], columns[0] : columns[0] + shape[1]]


def spread(mask: np.ndarray, block: tuple[int, int], shape: tuple[int, int]) -> np.ndarray:
    """A mask of blocks as one of elements."""
    whole = np.repeat(np.repeat(mask, block[0], -2), block[1], -1)
    return whole[..., : shape[0], : shape[1]]


def attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    keep: np.ndarray,
    *,
    scale: float,
    cap: float | None = None,
    slopes: np.ndarray | None = None,
    bias: Any = 0.0,
) -> tuple[np.ndarray, np.ndarray]:
    """[B, T, N, H], of grouped heads, and the log-sum-exp [B, N, T]; keep bool[b, n, T, S]."""
    group = q.shape[2] // k.shape[2]
    k, v = np.repeat(k, group, 2), np.repeat(v, group, 2)
    scores = np.einsum("btnh,bsnh->bnts", q, k, optimize=True) * scale
    if cap:
        scores = cap * np.tanh(scores / cap)
    if slopes is not None:
        away = np.arange(k.shape[1]) - np.arange(q.shape[1])[:, None]
        scores = scores + slopes[:, None, None] * away
    scores = np.where(keep, scores + bias, -np.inf)
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0)
    weights = np.exp(scores - top)
    total = weights.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (np.log(total) + top)[..., 0]
    weights = weights / np.where(total == 0, 1, total)
    return np.einsum("bnts,bsnh->btnh", weights, v, optimize=True), lse


def owners(sizes: Any, rows: int) -> np.ndarray:
    """The group of each sorted row; -1 where no group owns it."""
    owner, at = np.full(rows, -1), 0
    for group, size in enumerate(sizes):
        owner[at : at + max(int(size), 0)] = group
        at += max(int(size), 0)
    return owner


def grouped(
    lhs: np.ndarray,
    rhs: np.ndarray,
    sizes: Any,
    gather: Any = None,
    scatter: Any = None,
    row_weights: Any = None,
    num_rows: int | None = None,
) -> np.ndarray:
    """Rows of no group, and indices out of range, give nothing."""
    rows = len(lhs) if gather is None else len(gather)
    owner = owners(sizes, rows)
    source = np.arange(rows) if gather is None else np.asarray(gather)
    height = rows if scatter is None else len(lhs) if num_rows is None else num_rows
    target = np.arange(rows) if scatter is None else np.asarray(scatter)
    good = (owner >= 0) & (source >= 0) & (source < len(lhs)) & (target >= 0) & (target < height)
    out = np.zeros((height, rhs.shape[2]))
    for i in np.flatnonzero(good):
        weight = 1.0 if row_weights is None else row_weights[i]
        out[target[i]] += weight * (lhs[source[i]] @ rhs[owner[i]])
    return out


def best(logits: np.ndarray, most: int) -> np.ndarray:
    """The positions of the largest entries of the last axis, the lower ones of equal ones first."""
    return np.argsort(-logits, axis=-1, kind="stable")[..., :most]


def moments(x: np.ndarray, mask: np.ndarray, kind: str, groups: int) -> tuple[np.ndarray, ...]:
    """Mean and variance of what counts, to broadcast over x; zero where nothing does."""
    split = x.reshape(*x.shape[:-1], groups, -1)
    counted = np.broadcast_to(mask[..., None, None], split.shape)
    spatial = tuple(range(1, x.ndim - 1))
    last = x.ndim
    axes = {"batch": (0, *spatial), "group": (*spatial, last), "layer": (last - 1, last)}[kind]
    number = np.maximum(counted.sum(axes, keepdims=True), 1)
    mean = np.where(counted, split, 0).sum(axes, keepdims=True) / number
    var = np.where(counted, (split - mean) ** 2, 0).sum(axes, keepdims=True) / number
    return tuple(np.broadcast_to(v, split.shape).reshape(x.shape) for v in (mean, var))
