"""The time of every variant of masked_conv on many shapes and masks, and the rates that follow.

    python benchmarks/masked_conv/sweep.py --out sweep.json [--case NAME] [--dtype T] [--masks N]

GPU time by CUDA events. Every output is checked. `rates.py` fits rates to such files.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

from jaxsparse.bench.masked_conv.probe import ConvProbe
from jaxsparse.testing import ConvCase, make_masks
from jaxsparse.testing.cases import cases
from jaxsparse.tune.sweep import Sample, Sweep

#: Dense layers at some of 32 x 512 tokens: 1x1 windows over images of one row.
TOKENS = tuple(
    ConvCase(f"tokens_{d}_{n}", 32, 1, 512, d, n, kernel=(1, 1))
    for d, n in ((768, 2304), (768, 768), (768, 3072), (3072, 768))
)
#: The layers of examples/models/edit_network.py, 16-bit, where they differ from the cases.
EDIT = (
    ConvCase("edit_512x512_32", 1, 512, 512, 32, 32),
    ConvCase("edit_1024x1024_32", 1, 1024, 1024, 32, 32),
    ConvCase("edit_512x512_32_64_stride2", 1, 512, 512, 32, 64, strides=(2, 2)),
    ConvCase("edit_256x256_64", 1, 256, 256, 64, 64),
    ConvCase("edit_256x256_64_16", 1, 256, 256, 64, 16),
)
#: The last convolution of a bottleneck: wide results of few channels.
WIDEN = (ConvCase("b64_56x56x64_1x1_256", 64, 56, 56, 64, 256, kernel=(1, 1)),)


def _width(
    batch: int,
    height: int,
    width: int,
    channels: int,
    outputs: int,
    window: int = 3,
    stride: int = 1,
) -> ConvCase:
    name = f"b{batch}_{height}x{width}_{channels}to{outputs}_{window}x{window}_s{stride}"
    sides = (window, window), (stride, stride)
    return ConvCase(name, batch, height, width, channels, outputs, *sides)


#: Channels and outputs between the powers of two, and far apart.
WIDTHS = (
    _width(16, 72, 72, 96, 96),
    _width(6, 104, 104, 160, 160),
    _width(8, 88, 88, 192, 192),
    _width(16, 64, 64, 128, 512, window=1),
    _width(4, 64, 80, 320, 320),
    _width(16, 20, 20, 512, 512),
    _width(8, 64, 64, 64, 64, window=5),
    _width(16, 80, 80, 96, 192, stride=2),
    _width(16, 40, 40, 512, 128, window=1),
    _width(16, 48, 48, 64, 128),
    _width(16, 48, 48, 128, 64),
    _width(4, 112, 112, 48, 48),
)
KNOWN = (*cases("gpu"), *TOKENS, *EDIT, *WIDEN, *WIDTHS)
KINDS = ("blobs", "edges", "rectangles", "random", "fine_blobs")


def plans(masks: int, seed: int) -> Iterator[tuple[str, float, int]]:
    """Kinds and densities, evenly spread, the fullest first: (kind, density, seed)."""
    rng = np.random.default_rng(seed)
    for i in reversed(range(masks)):
        density = float(((i + rng.random()) / masks) ** 1.5)
        yield KINDS[i % len(KINDS)], density, seed + i


def measure(
    chosen: Sequence[ConvCase],
    dtypes: Sequence[str],
    masks: int,
    first: int,
    repeat: int,
    seconds: float,
    base: bool = False,
) -> Iterator[Sample]:
    """Samples until the time is used up."""
    start = time.perf_counter()
    for dtype in dtypes:
        for place, case in enumerate(chosen):
            if time.perf_counter() - start > seconds:
                print(f"out of time before {case.name} {dtype}", file=sys.stderr)
                return
            begun = time.perf_counter()
            sweep = Sweep(ConvProbe(case, dtype, calls=6), base=base)
            sweep.compile()
            compiled = time.perf_counter()
            for kind, density, seed in plans(masks, first + 1000 * place):
                mask = make_masks(kind, case.mask_shape, density, seed=seed)[0]
                yield from sweep.samples(mask, kind, seed, repeat=repeat)
            done = time.perf_counter()
            print(
                f"{case.name} {dtype}: {compiled - begun:.1f} s compiling, {done - compiled:.1f} s",
                file=sys.stderr,
            )


def main() -> int:
    """Measure and write; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--case", action="append", help="a case; default: all of tag gpu")
    parser.add_argument("--dtype", action="append", help="default: bfloat16 and float32 (TF32)")
    parser.add_argument("--masks", type=int, default=15, help="of each case")
    parser.add_argument("--first", type=int, default=0, help="seed of the first mask")
    parser.add_argument("--repeat", type=int, default=3, help="timed runs")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no case after that")
    parser.add_argument("--base", action="store_true", help="calls with a base, not with zeros")
    parser.add_argument("--out", type=Path, required=True, help="JSON, a sample a line")
    given = parser.parse_args()
    chosen = [c for c in KNOWN if not given.case or c.name in given.case]
    dtypes = given.dtype or ["bfloat16", "float32"]
    found = 0
    with given.out.open("wb") as file:
        for sample in measure(
            chosen, dtypes, given.masks, given.first, given.repeat, given.seconds, given.base
        ):
            file.write(msgspec.json.encode(sample) + b"\n")
            file.flush()
            found += 1
    print(f"{found} samples")
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
