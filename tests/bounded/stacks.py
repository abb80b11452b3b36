"""Stacks that the tests share: with and without proofs, folding or not, of equal and unequal
widths."""

import itertools

import numpy as np
import scipy.sparse as sp

import jaxsparse as js


def oracle(x, weights, biases, uppers):
    """float64, layer by layer, from what the float32 arrays hold."""
    y = np.asarray(x, np.float64)
    for w, b, u in zip(weights, biases, uppers, strict=True):
        w = sp.csr_matrix(w).astype(np.float32).astype(np.float64)
        b = np.broadcast_to(np.asarray(b, np.float32).astype(np.float64), w.shape[0])
        y = np.minimum(np.maximum((w @ y.T).T + b, 0.0), np.float32(u).astype(np.float64))
    return y


def signed(rng, widths, density=0.2):
    """Random signed weights, varied biases, bounds 1 and 6: nothing can be proven."""
    weights, biases, uppers = [], [], []
    for n_in, n_out in itertools.pairwise(widths):
        scale = 2.0 / np.sqrt(max(density * n_in, 1.0))
        w = sp.random(n_out, n_in, density, random_state=rng, dtype=np.float32, format="csr")
        w.data = (rng.standard_normal(w.nnz) * scale).astype(np.float32)
        weights.append(w)
        biases.append((rng.standard_normal(n_out) * 0.3).astype(np.float32))
        uppers.append((1.0, 6.0)[len(uppers) % 2])
    return weights, biases, uppers


def saturating(rng, widths, group=4):
    """Non-negative weights with row sums of 2 and more, biases <= 0, outputs in groups: everything
    is proven."""
    weights, biases, uppers = [], [], []
    for n_in, n_out in itertools.pairwise(widths):
        rows = -(-n_out // group)
        w = np.where(rng.random((rows, n_in)) < 0.3, rng.integers(1, 4, (rows, n_in)) / 8, 0)
        w[:, 0] += 2.0
        weights.append(np.repeat(w, group, 0)[:n_out].astype(np.float32))
        biases.append(np.repeat(-rng.integers(0, 4, rows) / 8, group)[:n_out].astype(np.float32))
        uppers.append(4.0)
    return weights, biases, uppers


def bundled(rng, widths, group=16):
    """Random signed weights; `group` outputs in a row have the same inputs, but weights and biases
    of their own. The last layer has none such."""
    weights, biases, uppers = signed(rng, widths)
    for i, w in enumerate(weights[:-1]):
        rows = -(-w.shape[0] // group)
        pattern = np.repeat(rng.random((rows, w.shape[1])) < 0.2, group, 0)[: w.shape[0]]
        drawn = rng.standard_normal(w.shape) / np.sqrt(max(0.2 * w.shape[1], 1.0))
        weights[i] = np.where(pattern, drawn, 0).astype(np.float32)
    return weights, biases, uppers


def blinking(width):
    """A stack in which saturation is not absorbing: rows at the bound and zero rows come back
    mixed."""
    flip = -np.eye(width, dtype=np.float32)
    shift = np.roll(np.eye(width, dtype=np.float32), 1, axis=1)
    ramp = (np.arange(width) % 3 / 2).astype(np.float32)
    weights = [4 * np.eye(width, dtype=np.float32), flip, shift, flip, shift + flip]
    biases = [-1.0, np.float32(1.0), ramp, ramp, np.float32(0.5)]
    return weights, biases, [1.0] * 5


def layers_of(stack, **options):
    return [js.bounded.inspect(w.T, b, u, **options) for w, b, u in zip(*stack, strict=True)]


def inputs(rng, batch, width):
    """Rows that are zero, small, large and mixed."""
    x = rng.random((batch, width)) * rng.choice([0.0, 0.1, 1.0, 8.0], (batch, 1))
    return x.astype(np.float32)
