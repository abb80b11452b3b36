"""Every C++ variant of six ops against the reference: a smoke test of a cross-compiled module.

`make aarch64` runs it under qemu; it runs on any machine.
"""

import platform
import sys

import jax
import jax.numpy as jnp
import numpy as np

import jaxsparse as js
from jaxsparse import _cpu


def compare(name, variant, op):
    """Whether the op by one variant agrees with the reference."""
    with js.config(variant=variant):
        ours = np.asarray(op("cpu"), np.float64)
    expected = np.asarray(op("reference"), np.float64)
    error = float(np.abs(ours - expected).max() / np.abs(expected).max())
    print(f"{name:15} {variant.name:12} largest relative error {error:.1e}", flush=True)
    return error < 2e-6


def main():
    print(f"{platform.machine()}, {_cpu.instruction_set()}, jax {jax.__version__}", flush=True)
    rng = np.random.default_rng(0)
    draw = lambda *shape: jnp.asarray(rng.standard_normal(shape), jnp.float32)  # noqa: E731
    x, kernel, mask = (
        draw(1, 9, 10, 8),
        draw(3, 3, 8, 12),
        jnp.asarray(rng.random((1, 9, 10)) < 0.4),
    )
    a, b, sizes = draw(48, 32), draw(3, 32, 24), jnp.asarray([20, 0, 28], jnp.int32)
    blocks = jnp.asarray(rng.random((3, 4)) < 0.5)
    weight = np.where(rng.random((32, 24)) < 0.2, rng.standard_normal((32, 24)), 0)
    pruned = js.pruned.inspect(weight.astype(np.float32))
    tokens = [draw(1, 48, 2, 20) for _ in range(3)]
    attended = js.BlockMask.from_dense(jnp.asarray(rng.random((1, 2, 48, 48)) < 0.5), 16)
    ops = {
        "masked_conv": lambda i: js.masked_conv(x, kernel, mask, implementation=i),
        "grouped_matmul": lambda i: js.grouped_matmul(a, b, sizes, implementation=i),
        "masked_matmul": lambda i: js.masked_matmul(
            a, b[0], a_mask=blocks, granularity=(16, 8), implementation=i
        ),
        "sparse_attention": lambda i: js.sparse_attention(
            *tokens, attended, soft_cap=4.0, implementation=i
        ),
        "sparse_ffn": lambda i: js.sparse_ffn(a, a.T, a, implementation=i),
        "pruned_matmul": lambda i: js.pruned_matmul(a, pruned, implementation=i),
    }
    taps = np.where(rng.random((3, 3, 1, 20)) < 0.4, rng.standard_normal((3, 3, 1, 20)), 0)
    depthwise = js.pruned.inspect(taps.astype(np.float32), kind="conv", groups=20)
    image = draw(1, 9, 10, 20)
    # Variants that take one kind of problem.
    apart = {
        "dots": lambda i: js.pruned_matmul(a[:1], pruned, implementation=i),
        "depthwise": lambda i: js.pruned_conv(image, depthwise, implementation=i),
    }
    right = [
        compare(name, variant, apart.get(variant.name, op))
        for name, op in ops.items()
        for variant in js.variants(name)
        if variant.platform == "cpu" and variant.name != "dense"
    ]
    print(f"{sum(right)} passed, {len(right) - sum(right)} failed")
    return not all(right)


if __name__ == "__main__":
    sys.exit(main())
