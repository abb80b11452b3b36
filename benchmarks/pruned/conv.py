"""pruned_conv against XLA's dense convolution in both layouts, BCOO, and torch and onnxruntime
where they are installed: SparDR's CV1-CV13, or the layers of a ResNet-50 of any width; float32.

    JAXSPARSE_DATA=DIR python benchmarks/pruned/conv.py [--cases CV1 CV7] [--batch 1] [--samples 7]
                                       [--resnet WIDTH] [--sparsity S] [--awake] [--out FILE.md]

Every call's output is checked. Exit status 1 when one was wrong.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from cases import CONVS, ConvCase, kernel_of, resnet50
from jax.experimental import sparse
from sides import Chain, Row, awake, compare, keep_freed_memory, report

import jaxsparse as js

SETS = 3
PAUSE, LASTS = 0.03, 0.03  # seconds between two sides' turns, and of a chain


def torch_side(case: ConvCase, inputs: Any, kernel: np.ndarray, wants: Any) -> Chain:
    """torch's dense convolution, in its channels-last layout (oneDNN on a CPU).

    Raises:
        ImportError: where torch is not installed.
    """
    import torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    weight = torch.from_numpy(kernel.transpose(3, 2, 0, 1).copy())
    weight = weight.contiguous(memory_format=torch.channels_last)
    images = [(torch.from_numpy(np.array(x)).permute(0, 3, 1, 2),) for (x,) in inputs]

    def run(x: Any) -> Any:
        with torch.inference_mode():
            return torch.nn.functional.conv2d(x, weight, None, case.stride, case.padding)

    wants = [w.transpose(0, 3, 1, 2) for w in wants]
    return Chain("torch", run, images, wants, jit=False)


def onnx_side(case: ConvCase, inputs: Any, kernel: np.ndarray, wants: Any) -> Chain:
    """onnxruntime's dense convolution, NCHW.

    Raises:
        ImportError: where onnx or onnxruntime is not installed.
    """
    import onnx
    import onnxruntime

    make = onnx.helper
    weight = onnx.numpy_helper.from_array(kernel.transpose(3, 2, 0, 1).copy(), "w")
    attributes = {"pads": [case.padding] * 4, "strides": [case.stride] * 2}
    node = make.make_node("Conv", ["x", "w"], ["y"], **attributes)
    kind = onnx.TensorProto.FLOAT
    value = make.make_tensor_value_info
    images = [(np.ascontiguousarray(np.asarray(x).transpose(0, 3, 1, 2)),) for (x,) in inputs]
    shape = images[0][0].shape
    graph = make.make_graph(
        [node], "conv", [value("x", kind, shape)], [value("y", kind, None)], [weight]
    )
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=8)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = len(os.sched_getaffinity(0))
    session = onnxruntime.InferenceSession(model.SerializeToString(), settings)
    wants = [w.transpose(0, 3, 1, 2) for w in wants]
    return Chain("onnxruntime", lambda x: session.run(None, {"x": x})[0], images, wants, jit=False)


def dense(case: ConvCase, x: Any, kernel: Any, layout: str) -> jax.Array:
    """XLA's, NHWC with HWIO or NCHW with OIHW."""
    return jax.lax.conv_general_dilated(
        x,
        kernel,
        (case.stride, case.stride),
        [(case.padding, case.padding)] * 2,
        dimension_numbers=(layout, "HWIO" if layout == "NHWC" else "OIHW", layout),
    )


def as_bcoo(case: ConvCase, kernel: np.ndarray) -> Any:
    """im2col and jax.experimental.sparse's product."""
    rows = kernel.transpose(3, 2, 0, 1).reshape(case.outputs, -1)
    matrix = sparse.BCOO.fromdense(jnp.asarray(rows))
    pads = [(case.padding, case.padding)] * 2

    def run(x: jax.Array) -> jax.Array:
        patches = jax.lax.conv_general_dilated_patches(
            x.transpose(0, 3, 1, 2), (case.window,) * 2, (case.stride,) * 2, pads
        )
        y = matrix @ patches.transpose(1, 0, 2, 3).reshape(rows.shape[1], -1)
        shape = (case.outputs, x.shape[0], *patches.shape[2:])
        return y.reshape(shape).transpose(1, 2, 3, 0)

    return run


def row(case: ConvCase, batch: int, samples: int, bcoo: bool) -> tuple[Row, float]:
    """One comparison, and the workspace over the dense activations."""
    kernel, source = kernel_of(case)
    rng = np.random.default_rng(0)
    shape = (batch, case.size, case.size, case.channels)
    inputs = [(jnp.asarray(rng.standard_normal(shape, np.float32)),) for _ in range(SETS)]
    wants = [np.asarray(dense(case, x, kernel, "NHWC"), np.float64) for (x,) in inputs]
    pruned = js.pruned.inspect(kernel, kind="conv")
    hwio, oihw = jnp.asarray(kernel), jnp.asarray(kernel.transpose(3, 2, 0, 1).copy())
    first = [(x.transpose(0, 3, 1, 2),) for (x,) in inputs]
    wants_first = [w.transpose(0, 3, 1, 2) for w in wants]
    options: dict[str, Any] = {"strides": case.stride, "padding": case.padding}

    def nhwc(x: jax.Array) -> jax.Array:
        return js.pruned_conv(x, pruned, **options)

    def nchw(x: jax.Array) -> jax.Array:
        return js.pruned_conv(x, pruned, layout="NCHW", **options)

    sides = [
        Chain("XLA NHWC", lambda x: dense(case, x, hwio, "NHWC"), inputs, wants),
        Chain("XLA NCHW", lambda x: dense(case, x, oihw, "NCHW"), first, wants_first),
        Chain("pruned NHWC", nhwc, inputs, wants),
        Chain("pruned NCHW", nchw, first, wants_first),
    ]
    for rival in (torch_side, onnx_side):
        try:
            sides.append(rival(case, inputs, kernel, wants))
        except ImportError:
            continue
    took = compare(f"{case.name} b{batch} ({source} pattern)", sides, samples, PAUSE, LASTS)
    if bcoo:
        slow = Chain("BCOO", as_bcoo(case, kernel), inputs, wants, calls=1)
        took.samples.update(compare(case.name, [slow], 2, PAUSE).samples)
    text = jax.jit(nhwc).lower(inputs[0][0]).compile().memory_analysis()
    used = getattr(text, "temp_size_in_bytes", 0) / (4 * (np.prod(shape) + wants[0].size))
    return took, float(used)


def main() -> int:
    """Every case, then the geometric means."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="+", help="names; default: all")
    parser.add_argument("--resnet", type=float, metavar="WIDTH", help="the 19 layers of ResNet-50")
    parser.add_argument("--sparsity", type=float, default=0.9, help="of the layers of ResNet-50")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--samples", type=int, default=7)
    parser.add_argument("--no-bcoo", action="store_true", help="it takes most of the time")
    parser.add_argument("--awake", action="store_true", help="keep the cores from halting")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    cases, title = CONVS, "pruned_conv, float32, CV1-CV13"
    if given.resnet:
        cases = resnet50(given.resnet, given.sparsity)
        title = f"pruned_conv, float32, ResNet-50 of {given.resnet:g} times the width"
    keep_freed_memory()
    with awake(given.awake):
        rows = [
            row(c, given.batch, given.samples, not given.no_bcoo)
            for c in cases
            if not given.cases or c.name in given.cases
        ]
    command = " ".join(["python", *sys.argv])
    return report(title, [r for r, _ in rows], command, given.out, summarise(rows))


def summarise(rows: list[tuple[Row, float]]) -> list[str]:
    """Ratios to the better layout of each rival, per layer and over all."""

    def best(one: Row, rivals: str) -> float:
        return min(s.wall_median for n, s in one.samples.items() if n.startswith(rivals))

    lines = []
    for rival in ("XLA", "torch", "onnxruntime", "BCOO"):
        with_it = [r for r, _ in rows if any(n.startswith(rival) for n in r.samples)]
        if not with_it:
            lines.append(f"{rival}: not installed")
            continue
        ratios = [best(r, rival) / r.samples["pruned NHWC"].wall_median for r in with_it]
        total = sum(best(r, rival) for r in with_it) / sum(
            r.samples["pruned NHWC"].wall_median for r in with_it
        )
        mean = np.exp(np.mean(np.log(ratios)))
        each = ", ".join(f"{v:.2f}" for v in ratios)
        lines.append(
            f"{rival} over pruned NHWC: geomean {mean:.2f}, of the sums {total:.2f} ({each})"
        )
    lines.append(f"workspace over dense activations: {', '.join(f'{u:.2f}' for _, u in rows)}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
