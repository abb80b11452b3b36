"""masked_conv by GPU time against what a user would write in jnp, and its gradients against dense
ones.

    python benchmarks/masked_conv/rivals.py [--case NAME] [--dtype T] [--density D] [--backward]

The rivals know how many pixels are active when they are traced (ours does not need that): pixels:
nonzero, a gather of every tap, one product, a scatter. Tiles: the same of 8 x 8 blocks with their
borders, and one convolution over them. With --backward: the gradients of x and of the kernel, for a
cotangent that is zero outside of the mask. CUDA events around jitted chains; results are compared
with XLA's dense ones.
"""

import argparse
import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxsparse as js
from jaxsparse.bench.measure.chain import tolerance
from jaxsparse.bench.measure.gpu_clock import GpuClock
from jaxsparse.bench.report.provenance import provenance
from jaxsparse.testing import ConvCase, make_masks
from jaxsparse.testing.cases import case as case_of

CASES = ("b64_40x40x256", "b8_128x128x256", "b4_256x256x128", "b1_512x512x64", "b64_56x56x64")
CALLS = 4
SIDE = 8


def dense(case: ConvCase, x: jax.Array, kernel: jax.Array, mask: jax.Array) -> jax.Array:
    """XLA's convolution, everywhere."""
    return jax.lax.conv_general_dilated(
        x,
        kernel,
        case.strides,
        case.geometry.padding,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


def masked(case: ConvCase, x: jax.Array, kernel: jax.Array, mask: jax.Array) -> jax.Array:
    """XLA's convolution and a mask: what results are compared with."""
    y = dense(case, x, kernel, mask)
    return jnp.where(mask[..., None], y, jnp.zeros_like(y))


def ours(case: ConvCase, x: jax.Array, kernel: jax.Array, mask: jax.Array) -> jax.Array:
    """The op, given a mask."""
    return js.masked_conv(x, kernel, mask, **case.options)


def pixels(
    case: ConvCase, count: int, x: jax.Array, kernel: jax.Array, mask: jax.Array
) -> jax.Array:
    """Gather every tap of `count` pixels, one product, scatter. Stride 1."""
    b, y, z = jnp.nonzero(mask, size=count, fill_value=mask.shape)
    padded = jnp.pad(x, ((0, 0), *case.geometry.padding, (0, 0)))
    taps = [padded[b, y + i, z + j] for i in range(case.kernel[0]) for j in range(case.kernel[1])]
    rows = jnp.concatenate(taps, -1) @ kernel.reshape(-1, case.outputs)
    return jnp.zeros((*mask.shape, case.outputs), x.dtype).at[b, y, z].set(rows, mode="drop")


def tiles(case: ConvCase, count: int, x: jax.Array, kernel: jax.Array, mask: jax.Array) -> Any:
    """Gather `count` blocks of 8 x 8 pixels with their borders, convolve, scatter. Stride 1."""
    (top, _), (left, _) = case.geometry.padding
    kh, kw = case.kernel
    images, height, width = mask.shape
    rows, columns = -(-height // SIDE), -(-width // SIDE)
    grown = jnp.pad(mask, ((0, 0), (0, rows * SIDE - height), (0, columns * SIDE - width)))
    blocks = grown.reshape(images, rows, SIDE, columns, SIDE).swapaxes(2, 3)
    b, i, j = jnp.nonzero(blocks.any((3, 4)), size=count, fill_value=(images, 0, 0))
    border = ((0, 0), (top, kh - 1 - top + SIDE), (left, kw - 1 - left + SIDE), (0, 0))
    padded = jnp.pad(x, border)
    ys = (i * SIDE)[:, None] + jnp.arange(SIDE + kh - 1)
    zs = (j * SIDE)[:, None] + jnp.arange(SIDE + kw - 1)
    parts = padded[b[:, None, None], ys[:, :, None], zs[:, None, :]]
    made = jax.lax.conv_general_dilated(
        parts, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    made = jnp.where(blocks.at[b, i, j].get(mode="fill", fill_value=False)[..., None], made, 0)
    out = jnp.zeros((images, rows * SIDE, columns * SIDE, case.outputs), x.dtype)
    put = b[:, None, None], ys[:, :SIDE, None], zs[:, None, :SIDE]
    return out.at[put].set(made, mode="drop")[:, :height, :width]


def backward(way: Callable[..., Any]) -> Callable[..., Any]:
    """The gradients of x and of the kernel of a way, for the cotangent `g`."""

    def run(x: jax.Array, kernel: jax.Array, mask: jax.Array, g: jax.Array) -> Any:
        return jax.vjp(lambda x, kernel: way(x, kernel, mask), x, kernel)[1](g)

    return run


def timed(
    way: Callable[..., Any], inputs: Sequence[Any], kernel: jax.Array, masks: Any, samples: int
) -> tuple[float, Any]:
    """Microseconds a call of a chain, and its results."""
    clock = GpuClock()

    def chain(inputs: Any, kernel: jax.Array, masks: Any) -> Any:
        leaves, tree = jax.tree.flatten((inputs, kernel, masks))
        inputs, kernel, masks = jax.tree.unflatten(tree, clock.start(leaves))
        made = [way(x[0], kernel, mask, *x[1:]) for x, mask in zip(inputs, masks, strict=True)]
        leaves, tree = jax.tree.flatten(made)
        return jax.tree.unflatten(tree, clock.stop(leaves))

    compiled = jax.jit(chain).lower(inputs, kernel, masks).compile()
    took, out = [], None
    for _ in range(samples + 2):
        out = None
        out = jax.block_until_ready(compiled(inputs, kernel, masks))
        took.append(clock.microseconds() / len(inputs))
    return float(np.median(took[2:])), out


@jax.jit
def _error(made: Any, wanted: Any) -> jax.Array:
    def one(a: jax.Array, b: jax.Array) -> jax.Array:
        a, b = a.astype(jnp.float32), b.astype(jnp.float32)
        return jnp.abs(a - b).max() / jnp.maximum(jnp.abs(b).max(), 1.0)

    return jnp.stack(jax.tree.leaves(jax.tree.map(one, made, wanted))).max()


def compare(case: ConvCase, dtype: str, density: float, samples: int, back: bool) -> str:
    """A line of the table."""
    keys = jax.random.split(jax.random.key(0), 3)
    draw = functools.partial(jax.random.normal, dtype=jnp.float32)
    fan_in = float(np.prod(case.kernel_shape[:3]))
    kernel = (draw(keys[0], case.kernel_shape) * fan_in**-0.5).astype(dtype)
    drawn = make_masks("blobs", case.mask_shape, density, count=CALLS // 2)
    masks = [jnp.asarray(drawn[i // 2]) for i in range(CALLS)]
    xs = [(draw(k, case.x_shape).astype(dtype),) for k in jax.random.split(keys[1], CALLS)]
    if back:
        shape = (*case.mask_shape, case.outputs)
        gs = [draw(k, shape) for k in jax.random.split(keys[2], CALLS)]
        xs = [
            (x, jnp.where(m[..., None], g, 0).astype(dtype))
            for (x,), g, m in zip(xs, gs, masks, strict=True)
        ]
    count = -(-max(int(m.sum()) for m in drawn) // 128) * 128
    ways = {"XLA dense": dense, "ours": ours}
    calls: dict[str, Any] = {name: functools.partial(way, case) for name, way in ways.items()}
    if not back:
        calls["pixels in jnp"] = functools.partial(pixels, case, count)
        calls["tiles in jnp"] = functools.partial(tiles, case, max(_blocks(m) for m in drawn))
    check = functools.partial(masked, case)
    if back:
        calls, check = {name: backward(way) for name, way in calls.items()}, backward(check)
    wanted = timed(check, xs, kernel, masks, 0)[1]
    cells, first = [], 0.0
    for name, way in calls.items():
        took, made = timed(way, xs, kernel, masks, samples)
        error = 0.0 if name == "XLA dense" and not back else float(_error(made, wanted))
        del made
        first = first or took
        wrong = "" if error <= 2 * tolerance(dtype, "cuda") else f" wrong by {error:.1e}"
        cells.append(f"{took:.1f} ({first / took:.2f}x){wrong}")
    return f"| {case.name} | {dtype} | {density} | " + " | ".join(cells) + " |"


def _blocks(mask: np.ndarray) -> int:
    """Active blocks of 8 x 8 pixels."""
    images, height, width = mask.shape
    rows, columns = -(-height // SIDE), -(-width // SIDE)
    grown = np.zeros((images, rows * SIDE, columns * SIDE), bool)
    grown[:, :height, :width] = mask
    return int(grown.reshape(images, rows, SIDE, columns, SIDE).any((2, 4)).sum())


def main() -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--case", action="append")
    parser.add_argument("--dtype", action="append", help="default: bfloat16")
    parser.add_argument("--density", type=float, action="append", help="default: .1 .3 .5 1")
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--backward", action="store_true")
    given = parser.parse_args()
    print(*provenance("python benchmarks/masked_conv/rivals.py").lines(), sep="\n")
    sides = "XLA dense | ours |" + ("" if given.backward else " pixels in jnp | tiles in jnp |")
    print(f"| case | dtype | density | {sides}")
    wrong = False
    for name in given.case or CASES:
        for dtype in given.dtype or ["bfloat16"]:
            for density in given.density or [0.1, 0.3, 0.5, 1.0]:
                line = compare(case_of(name), dtype, density, given.samples, given.backward)
                wrong |= "wrong" in line
                print(line, flush=True)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
