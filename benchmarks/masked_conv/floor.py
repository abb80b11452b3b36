"""masked_conv by GPU time on every shape and mask, against dense convolutions and the floor.

    python benchmarks/masked_conv/floor.py --out rows.json [--case NAME] [--dtype T] [--seconds N]
    python benchmarks/masked_conv/floor.py --table rows.json [rows2.json ...] > table.md

Times are of CUDA events around jitted chains of eight calls on distinct inputs, an index built for
every two calls inside; "ours" is the op as a user calls it, given a mask. Every output is checked.
Needs torch, whose cuDNN convolution (channels_last) stands beside XLA's.
"""

import argparse
import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np

import jaxsparse as js
from jaxsparse.bench.masked_conv.floor import floor_us
from jaxsparse.bench.masked_conv.floor_table import FloorRow, Measured, to_markdown
from jaxsparse.bench.masked_conv.probe import ConvProbe
from jaxsparse.bench.measure.chain import tolerance
from jaxsparse.bench.report.provenance import provenance
from jaxsparse.testing import ConvCase, make_masks, tile_density
from jaxsparse.testing.cases import cases

MASKS = ("blobs", "rectangles", "edges", "random")
DENSITIES = (0.1, 0.3, 0.5)
CALLS, INDEX_EVERY = 8, 2
SMALL_TILE = (8, 8)


def dense(case: ConvCase, i: int, x: jax.Array, kernel: jax.Array, extra: Any) -> jax.Array:
    """XLA's convolution, as a user writes it."""
    return jax.lax.conv_general_dilated(
        x,
        kernel,
        case.strides,
        case.geometry.padding,
        rhs_dilation=case.dilation,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


def ours(case: ConvCase, i: int, x: jax.Array, kernel: jax.Array, masks: Any) -> jax.Array:
    """The op, given a mask."""
    return js.masked_conv(x, kernel, masks[i // INDEX_EVERY], **case.options)


class Problem:
    """One case in one dtype, its chains compiled."""

    def __init__(self, case: ConvCase, dtype: str):
        self.case, self.dtype = case, dtype
        self.probe = ConvProbe(case, dtype, calls=CALLS)

    def compile(self) -> float:
        """Compile both chains; returns the seconds that it took."""
        start = time.perf_counter()
        masks = [jnp.zeros(self.case.mask_shape, bool) for _ in range(CALLS // INDEX_EVERY)]
        self.ours = self.probe.compile(lambda *args: ours(self.case, *args), masks)
        self.dense = self.probe.compile(lambda *args: dense(self.case, *args))
        return time.perf_counter() - start

    def rows(self, samples: int) -> Iterator[FloorRow]:
        """Masks and densities one after the other; the dense ones before and after."""
        before, error = self.probe.time(self.dense, (), None, samples=samples)
        rival, other = self.probe.time_torch(samples=samples)
        plans = [(kind, d) for kind in MASKS for d in DENSITIES] + [("full", 1.0)]
        found = [(kind, d, *self._ours(kind, d, samples)) for kind, d in plans]
        after, last = self.probe.time(self.dense, (), None, samples=samples)
        xla = float(np.median([*before, *after]))
        bound = tolerance(self.dtype, "cuda")
        names = self._names([masks[0] for _, _, masks, _, _ in found])
        for (kind, density, masks, took, wrong), name in zip(found, names, strict=True):
            pixels = float(np.mean([m.mean() for m in masks]))
            tiles = float(np.mean([tile_density(m, SMALL_TILE) for m in masks]))
            floor = float(np.mean([floor_us(self.case, self.dtype, m) for m in masks]))
            low, high = np.percentile(took, [25, 75])
            yield FloorRow(
                case=self.case.name,
                dtype=self.dtype,
                mask=kind,
                asked=density,
                pixels=pixels,
                tiles=tiles,
                xla_us=xla,
                torch_us=float(np.median(rival)),
                ours_us=float(np.median(took)),
                spread=float(high - low) / float(np.median(took)),
                floor_us=floor,
                chosen=name,
                error=wrong,
                correct=bool(max(wrong, error, last, other) <= bound),
            )

    def _ours(self, kind: str, density: float, samples: int) -> Any:
        name = "blobs" if kind == "full" else kind
        count = CALLS // INDEX_EVERY
        drawn = make_masks(name, self.case.mask_shape, density)[0]
        # Distinct, or they would be indexed once: the same mask, moved around the image.
        masks = [np.roll(drawn, (5 * i, 3 * i), (1, 2)) for i in range(count)]
        each = [masks[i // INDEX_EVERY] for i in range(CALLS)]
        extra = [jnp.asarray(m) for m in masks]
        return masks, *self.probe.time(self.ours, extra, each, samples=samples)

    def _names(self, masks: Sequence[np.ndarray]) -> list[str]:
        """What the device chooses on each of these masks."""
        x, kernel = self.probe.xs[0][0], self.probe.kernel
        mask = jnp.asarray(masks[0])
        told = js.explain(lambda: js.masked_conv(x, kernel, mask, **self.case.options)).calls[0]
        counts = [(int(each.sum()), _count(each, SMALL_TILE)) for each in masks]
        if told.choice is None:
            return [told.implementation] * len(counts)
        return [told.choice.variant(each, told.n_tiles) for each in counts]


def _count(mask: np.ndarray, tile: tuple[int, int]) -> int:
    """Active tiles."""
    images, height, width = mask.shape
    return round(tile_density(mask, tile) * images * -(-height // tile[0]) * -(-width // tile[1]))


def measure(
    chosen: Sequence[ConvCase], dtypes: Sequence[str], samples: int, seconds: float
) -> Iterator[FloorRow]:
    """Rows until the time is used up."""
    start = time.perf_counter()
    todo = [(case, dtype) for dtype in dtypes for case in chosen]
    for case, dtype in todo:
        if time.perf_counter() - start > seconds:
            print(f"out of time before {case.name} {dtype}", file=sys.stderr)
            return
        problem = Problem(case, dtype)
        took = problem.compile()
        begun = time.perf_counter()
        yield from problem.rows(samples)
        spent = time.perf_counter() - begun
        print(f"{case.name} {dtype}: {took:.1f} s compiling, {spent:.1f} s", file=sys.stderr)


def main() -> int:
    """Measure or lay out; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--case", action="append", help="a case; default: all of tag gpu")
    parser.add_argument("--dtype", action="append", help="default: bfloat16 and float32 (TF32)")
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no case after that")
    parser.add_argument("--out", type=Path, help="JSON")
    parser.add_argument("--table", type=Path, nargs="+", help="lay out such files, measure nothing")
    given = parser.parse_args()
    if given.table:
        files = [msgspec.json.decode(f.read_bytes(), type=Measured) for f in given.table]
        print(to_markdown(files))
        return 0
    chosen = [c for c in cases("gpu") if not given.case or c.name in given.case]
    rows = []
    where = provenance("python benchmarks/masked_conv/floor.py")
    for row in measure(
        chosen, given.dtype or ["bfloat16", "float32"], given.samples, given.seconds
    ):
        rows.append(row)
        print(row.line(), flush=True)
        if given.out:
            with contextlib.suppress(OSError):
                given.out.write_bytes(msgspec.json.encode(Measured(where, tuple(rows))))
    return 0 if rows and all(row.correct for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
