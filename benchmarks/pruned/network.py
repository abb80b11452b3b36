"""A whole pruned network, ResNet-50's 53 convolutions with ReLU and shortcuts, against the dense
one: through jit, batch 1 and 8, float32. A second line times the 53 convolutions alone, each on an
input of its own.

    JAXSPARSE_DATA=DIR python benchmarks/pruned/network.py [--batch 1 8] [--sparsity 0.9]
                                           [--size 224] [--samples 5] [--out FILE.md]
                                           [--precision highest] [--variant windows] [--awake]

Patterns are those of the Deep Learning Matrix Collection where JAXSPARSE_DATA is set, random ones
elsewhere. Exit status 1 when an output was wrong.
"""

import argparse
import contextlib
import functools
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from cases import layer_of
from sides import Chain, Row, awake, compare, keep_freed_memory, report

import jaxsparse as js

SETS = 3
BLOCKS = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))


def kernel(name: str, shape: tuple[int, int, int, int], sparsity: float) -> np.ndarray:
    """float32[kh, kw, C, O] with the pattern of that layer, scaled so that signals keep their
    size.
    """
    kh, kw, channels, outputs = shape
    flat, _ = layer_of(name, (outputs, kh * kw * channels), sparsity)
    kept = max(np.count_nonzero(flat) / outputs, 1)
    flat = flat / max(float(np.abs(flat).std()), 1e-6) * np.float32((2 / kept) ** 0.5) * 0.3
    return np.ascontiguousarray(flat.reshape(shape), np.float32)


def layers(sparsity: float) -> dict[str, tuple[np.ndarray, int]]:
    """Name -> (kernel, stride), in the order of the network."""
    found: dict[str, tuple[np.ndarray, int]] = {}

    def add(name: str, window: int, channels: int, outputs: int, stride: int) -> None:
        shape = (window, window, channels, outputs)
        found[name] = kernel(name, shape, sparsity), stride

    add("initial_conv", 7, 3, 64, 2)
    channels = 64
    for group, (count, width, stride) in enumerate(BLOCKS, 1):
        for i in range(count):
            tail = (
                f"block_group_projection_block_group{group}"
                if i == 0
                else f"block_group{group}_{i}_1"
            )
            if i == 0:
                add(f"bottleneck_projection_{tail}", 1, channels, 4 * width, stride)
            add(f"bottleneck_1_{tail}", 1, channels, width, 1)
            add(f"bottleneck_2_{tail}", 3, width, width, stride if i == 0 else 1)
            add(f"bottleneck_3_{tail}", 1, width, 4 * width, 1)
            channels = 4 * width
    return found


def dense(
    x: jax.Array, weight: Any, stride: int, activation: str | None, precision: str | None = None
) -> jax.Array:
    """XLA's convolution."""
    dims, strides = ("NHWC", "HWIO", "NHWC"), (stride, stride)
    y = jax.lax.conv_general_dilated(
        x, weight, strides, "SAME", dimension_numbers=dims, precision=precision
    )
    return jax.nn.relu(y) if activation else y


def sparse(
    x: jax.Array,
    weight: Any,
    stride: int,
    activation: str | None,
    precision: str | None = None,
    variant: str | None = None,
) -> jax.Array:
    """Ours."""
    with js.config(variant=variant) if variant else contextlib.nullcontext():
        return js.pruned_conv(x, weight, strides=stride, activation=activation, precision=precision)


def inputs_of(weights: dict[str, tuple[Any, int]], x: jax.Array) -> list[tuple[int, ...]]:
    """The shape of each convolution's input, in the order in which the network runs them."""
    shapes: list[tuple[int, ...]] = []

    def record(x: jax.Array, weight: Any, stride: int, activation: str | None) -> jax.Array:
        shapes.append(x.shape)
        return dense(x, weight, stride, activation)

    jax.eval_shape(lambda x: network(record, weights, x), x)
    return shapes


def alone(convolve: Any, weights: list[tuple[Any, int]], *xs: jax.Array) -> list[jax.Array]:
    """Every convolution's result, each of an input of its own."""
    return [convolve(x, w, stride, None) for x, (w, stride) in zip(xs, weights, strict=True)]


def network(convolve: Any, weights: dict[str, tuple[Any, int]], x: jax.Array) -> jax.Array:
    """[B, size, size, 3] -> [B, 2048]: the body of ResNet-50 without normalisation."""
    x = convolve(x, *weights["initial_conv"], "relu")
    x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    for name in weights:
        if not name.startswith("bottleneck_1_"):
            continue
        tail = name.removeprefix("bottleneck_1_")
        projection = f"bottleneck_projection_{tail}"
        shortcut = convolve(x, *weights[projection], None) if projection in weights else x
        y = convolve(x, *weights[name], "relu")
        y = convolve(y, *weights[f"bottleneck_2_{tail}"], "relu")
        y = convolve(y, *weights[f"bottleneck_3_{tail}"], None)
        x = jax.nn.relu(shortcut + y)
    return x.mean((1, 2))


def order_of(weights: dict[str, Any]) -> list[str]:
    """The names in the order in which the network runs them."""
    names: list[str] = []
    for name in weights:
        if name.startswith(("initial", "bottleneck_projection")):
            names.append(name)
        elif name.startswith("bottleneck_1_"):
            tail = name.removeprefix("bottleneck_1_")
            names += [f"bottleneck_{i}_{tail}" for i in (1, 2, 3)]
    return names


def rows(batch: int, given: argparse.Namespace) -> tuple[list[Row], str]:
    """The network, and its convolutions each on an input of its own."""
    numpy = layers(given.sparsity)
    full = {name: (jnp.asarray(k), stride) for name, (k, stride) in numpy.items()}
    plans = {
        name: (js.pruned.inspect(k, kind="conv"), stride) for name, (k, stride) in numpy.items()
    }
    conv = functools.partial(dense, precision=given.precision)
    ours = functools.partial(sparse, precision=given.precision, variant=given.variant)
    rng = np.random.default_rng(0)
    shape = (batch, given.size, given.size, 3)
    inputs = [(jnp.asarray(rng.standard_normal(shape, np.float32)),) for _ in range(SETS)]
    reference = jax.jit(lambda x: network(conv, full, x))
    wants = [np.asarray(reference(x), np.float64) for (x,) in inputs]
    took = compare(
        f"network, batch {batch}",
        [
            Chain("XLA", lambda x: network(conv, full, x), inputs, wants, calls=3),
            Chain("pruned", lambda x: network(ours, plans, x), inputs, wants, calls=3),
        ],
        given.samples,
    )
    names = order_of(full)
    shapes = inputs_of(full, inputs[0][0])
    each = [
        tuple(jnp.asarray(rng.standard_normal(s, np.float32)) for s in shapes) for _ in range(2)
    ]
    lists = [[some[name] for name in names] for some in (full, plans)]
    answers = jax.jit(functools.partial(alone, conv, lists[0]))
    wanted = [[np.asarray(y) for y in answers(*xs)] for xs in each]
    layer = compare(
        f"53 convolutions, batch {batch}",
        [
            Chain("XLA", lambda *xs: alone(conv, lists[0], *xs), each, wanted, calls=3),
            Chain("pruned", lambda *xs: alone(ours, lists[1], *xs), each, wanted, calls=3),
        ],
        given.samples,
    )
    kept = sum(p.pattern.entries for p, _ in plans.values())
    share = 1 - kept / sum(k.size for k, _ in numpy.values())
    return [took, layer], f"{len(plans)} convolutions, {100 * share:.1f} % pruned"


def main() -> int:
    """Every batch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--sparsity", type=float, default=0.9)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--precision", help="of both sides, as in jax.lax")
    parser.add_argument("--variant", help="the executor that every pruned layer must take")
    parser.add_argument("--awake", action="store_true", help="keep the cores from halting")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    keep_freed_memory()
    found, notes = [], []
    for batch in given.batch:
        with awake(given.awake):
            more, note = rows(batch, given)
        found += more
        for row in more:
            for side in row.samples:
                print(*row.cells(side), sep=" | ", flush=True)
        notes = [note]
    command = " ".join(["python", *sys.argv])
    return report("ResNet-50-shaped pruned network, float32", found, command, given.out, notes)


if __name__ == "__main__":
    sys.exit(main())
