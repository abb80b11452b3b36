"""Small cases of every kernel of saturated layers, each checked, for compute-sanitizer.

    XLA_PYTHON_CLIENT_ALLOCATOR=platform XLA_FLAGS=--xla_gpu_autotune_level=0 \\
        compute-sanitizer --tool memcheck --kernel-name kernel_substring=jaxsparse \\
        python benchmarks/masked_conv/recorded_cases.py [--only NAME ...]

Odd widths, one image, more images than a device's tiles (so that bundles go through memory by
panels), unfolded stacks too wide for shared memory, every dataflow with and without a recorder and
under codes, few images, segments that end anywhere, recorders of convolutions, outputs that see
decided pixels only. Exit status 1 when a result is wrong.
"""

import argparse
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

import jaxsparse as js
from jaxsparse.bounded.radixnet import patterns
from jaxsparse.core.geometry import Geometry
from jaxsparse.ops.masked_conv.fill import fill_rows
from jaxsparse.ops.masked_conv.params import ConvParams
from jaxsparse.ops.masked_conv.recorded import record_channels
from jaxsparse.ops.masked_conv.windows import Known, known_windows

RNG = np.random.default_rng(0)
Case = tuple[str, Callable[[], float]]


def oracle(x: np.ndarray, weights: Any, biases: Any, uppers: Any) -> np.ndarray:
    """float64, layer by layer."""
    y = x.astype(np.float64)
    for weight, bias, upper in zip(weights, biases, uppers, strict=True):
        double = sp.csr_matrix(weight).astype(np.float32).astype(np.float64)
        y = np.clip((double @ y.T).T + np.float32(bias), 0.0, np.float32(upper))
    return y


def signed(widths: tuple[int, ...], density: float) -> tuple[list[Any], list[Any], list[float]]:
    """Random signed weights, biases of each output, bounds 1 and 6."""
    weights, biases, uppers = [], [], []
    for i, (n_in, n_out) in enumerate(itertools.pairwise(widths)):
        weight = sp.random(n_out, n_in, density, random_state=RNG, dtype=np.float32, format="csr")
        weight.data = (RNG.standard_normal(weight.nnz) / np.sqrt(density * n_in)).astype("f4")
        weights.append(weight)
        biases.append((RNG.standard_normal(n_out) * 0.5).astype("f4"))
        uppers.append((1.0, 6.0)[i % 2])
    return weights, biases, uppers


def layers_of(stack: Any, **options: Any) -> list[Any]:
    """The inspected layers of a stack, whose weights are [n_out, n_in]."""
    return [js.bounded.inspect(w.T, b, u, **options) for w, b, u in zip(*stack, strict=True)]


def network(neurons: int, depth: int, images: int, fold: bool) -> float:
    """The challenge's network; the largest difference."""
    bias = {1024: -0.3, 4096: -0.35}.get(neurons, -0.3)
    layers = js.bounded.radixnet(neurons, depth, fold=fold)
    if neurons == 512:  # at -0.3 these images amplify float32's rounding to 8e-5, at -0.25 to 1e-7
        bias = -0.25
        biases, uppers = [np.full(neurons, bias, np.float32)] * depth, [32.0] * depth
        layers = layers_of((list(patterns(neurons, depth)), biases, uppers), fold=fold)
    net = js.bounded.network(layers, fold=fold, implementation="cuda")
    shape = (images, neurons)
    x = (RNG.random(shape) < RNG.uniform(0, 0.6, (images, 1))).astype(np.float32)
    want = oracle(x, patterns(neurons, depth), [bias] * depth, [32.0] * depth)
    return float(np.abs(np.asarray(net(jnp.asarray(x)).materialize()) - want).max()) / 32


def stack(widths: tuple[int, ...], density: float, images: int) -> float:
    """A stack that proves nothing."""
    given = signed(widths, density)
    net = js.bounded.network(layers_of(given), implementation="cuda")
    x = RNG.random((images, widths[0])).astype(np.float32)
    got = np.asarray(net(jnp.asarray(x)).materialize())
    return float(np.abs(got - oracle(x, *given)).max())


def bundled(images: int) -> float:
    """Bundles too wide to keep, of many lengths."""
    weights, biases, uppers = signed((128, 4000, 160, 40), 0.1)
    for i, share in ((0, 0.1), (1, 0.005)):
        n_out, n_in = weights[i].shape
        kept = (RNG.random((n_out // 16, n_in)) < share).repeat(16, 0)
        weights[i] = np.where(kept, RNG.standard_normal(kept.shape) / 4, 0).astype(np.float32)
    given = weights, biases, uppers
    net = js.bounded.network(layers_of(given), implementation="cuda")
    x = RNG.random((images, 128)).astype(np.float32)
    got = np.asarray(net(jnp.asarray(x)).materialize())
    return float(np.abs(got - oracle(x, *given)).max())


def layers(
    dataflow: str | None, record: bool, segment: int | None, images: int, widths: Any
) -> float:
    """Layer by layer: later ones read codes."""
    given = signed(widths, 0.1)
    given[1][0][: widths[1] // 2] = -9.0
    acts: Any = jnp.asarray(RNG.random((images, widths[0])), jnp.float32)
    want = oracle(np.asarray(acts), *given)
    for layer in layers_of(given):
        acts = js.bounded_matmul(
            acts, layer, dataflow=dataflow, record=record, segment=segment, implementation="cuda"
        )
    return float(np.abs(np.asarray(acts.materialize()) - want).max())


def recorded(dtype: str, channels: int, segment: int) -> float:
    """The codes of a convolution's result, and rows filled in: how many differ."""
    kinds = RNG.choice([0.0, 6.0, 1.5], (2, 37, 5, 1), p=[0.4, 0.4, 0.2])
    values = np.where(RNG.random((2, 37, 5, channels)) < 0.05, 3.0, kinds)
    out = jnp.asarray(values, dtype)
    got: Any = record_channels(out, segment, "cuda")
    wrong = int((got.codes != js.recorder.probe(out, segment, 6.0).codes).sum())
    flat, table = out.reshape(-1, channels), jnp.asarray(RNG.random((5, channels)), dtype)
    select = RNG.integers(-1, 6, len(flat)).astype(np.int32)  # 5 names no entry
    filled = fill_rows(flat, table, jnp.asarray(select), "cuda")
    chosen = (select >= 0) & (select < 5)
    want = np.where(chosen[:, None], np.asarray(table)[np.clip(select, 0, 4)], flat)
    return wrong + float((np.asarray(filled) != want).sum())


def windows(dtype: str, outputs: int, window: tuple[int, int], stride: int) -> float:
    """Outputs that see decided pixels only: the largest difference, and how many are misjudged."""
    geometry = Geometry((stride, stride), ((1, 0), (0, 1)), (1, 1), (1, 1), 1)
    codes = jnp.asarray(RNG.choice(3, (2, 23, 31, 1), p=[0.1, 0.6, 0.3]), jnp.uint8)
    cover = jnp.asarray(RNG.random((2, *geometry.out_size((23, 31), window))) < 0.8)
    kernel = jnp.asarray(RNG.standard_normal((window[0] * window[1], 19, outputs)), dtype)
    bias = jnp.asarray(RNG.standard_normal(outputs), jnp.float32)
    found = []
    for implementation in ("cuda", "reference"):
        conv = ConvParams(geometry, "relu6", "default", dtype, implementation)
        found.append(known_windows(Known(conv, window, 6.0), codes, cover, kernel, bias, None))
    (out, near), (want, seen) = found
    apart = jnp.where(near[..., None], 0, out.astype(jnp.float32) - want.astype(jnp.float32))
    return float(jnp.abs(apart).max()) / (1 if dtype == "float32" else 400) + float(
        (seen > near).sum()
    )


def cases() -> Iterator[Case]:
    """Name and what runs it."""
    yield "panels 512 x 17408", lambda: network(512, 16, 17408, False)
    yield "panels 4096 x 129", lambda: network(4096, 36, 129, False)
    yield "panels 4096 x 1", lambda: network(4096, 3, 1, False)
    yield "resident bundles 64 x 331", lambda: network(64, 14, 331, False)
    yield "folded 64 x 331", lambda: network(64, 14, 331, True)
    yield "folded 1024 x 45", lambda: network(1024, 14, 45, True)
    for images in (1, 45, 200):
        yield f"bundles too wide x {images}", lambda images=images: bundled(images)
        yield (
            f"rows too wide x {images}",
            lambda images=images: stack((401, 77, 7700, 13), 0.05, images),
        )
        yield f"odd stack x {images}", lambda images=images: stack((33, 50, 17, 401), 0.2, images)
    shapes = ((1, (300, 401, 77)), (45, (77, 1301, 13)), (1200, (33, 50, 17)))
    for flow in ("row", "slab", "column", "converged", None):
        for record, segment in ((True, None), (True, 7), (False, None)):
            for images, widths in shapes if flow == "column" else shapes[:2]:
                yield (
                    f"{flow} record={record} segment={segment} {images} x {widths}",
                    lambda a=(flow, record, segment, images, widths): layers(*a),
                )
    yield "column, many images", lambda: layers("column", True, None, 1200, (301, 500, 77))
    yield "column, wide", lambda: layers("column", True, None, 45, (5000, 301, 77))
    for segment in (None, 7):
        yield (
            f"column, too wide to stage, segment={segment}",
            lambda segment=segment: layers("column", True, segment, 600, (60, 5000, 77)),
        )
    yield "default, 200 images", lambda: layers(None, True, None, 200, (301, 500, 2500))
    yield "default, long rows x 40", lambda: layers(None, True, 7, 40, (1200, 500, 2500, 70))
    yield "default, long rows x 1", lambda: layers(None, True, None, 1, (1200, 500, 2500, 70))
    for dtype, outputs, window, stride in (
        ("float32", 13, (3, 3), 1),
        ("bfloat16", 256, (3, 3), 1),
        ("bfloat16", 5, (2, 3), 2),
        ("float32", 8, (1, 1), 1),
    ):
        yield (
            f"windows {dtype} {outputs} {window} {stride}",
            lambda a=(dtype, outputs, window, stride): windows(*a),
        )
    for dtype in ("float32", "bfloat16"):
        for channels, segment in ((16, 16), (256, 256), (16, 8), (13, 13), (13, 5), (3, 1)):
            yield (
                f"recorded {dtype} {channels} / {segment}",
                lambda a=(dtype, channels, segment): recorded(*a),
            )


def main() -> int:
    """Run and check; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[""], help="cases whose name holds one")
    given = parser.parse_args()
    ran = failed = 0
    for name, run in cases():
        if not any(part in name for part in given.only):
            continue
        error = run()
        ran += 1
        failed += not error <= 1e-4
        verdict = "" if error <= 1e-4 else ": too much"
        print(f"{name}: off by {error:.1e}{verdict}", flush=True)
    print(f"{ran} cases, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
