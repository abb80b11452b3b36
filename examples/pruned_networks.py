"""Whole networks of frozen, pruned weights: ResNet-50 with its batch normalisation folded,
MobileNetV1, VGG19, YOLOv8n's shapes, and a Transformer that encodes and decodes.

The weights are random and pruned by magnitude; where JAXSPARSE_DATA holds the pruned ResNet-50 of
the Deep Learning Matrix Collection, ResNet-50 keeps the weights that it keeps. Each network runs
through XLA with its zeros stored (dense and masked dense are the same here), through onnxruntime
where it is installed (extra `networks`), and through jaxsparse; the outputs must agree.

`python examples/pruned_networks.py [--quick | --full] [--networks resnet50 ...] [--batch N]
[--sparsity S] [--dtype bfloat16] [--repeats N] [--least] [--timeline] [--out DIR]`. `--full` is for
a GPU: batch 1 and 8, and a decoder 4,096 wide. `--timeline` prints for each network the times of
its layers in jaxsparse, of XLA's operators, and of the rest.
"""

import functools
import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import jaxsparse as js
from models.common import console, parser, peak_of, print_table, save, time_together, working
from models.pruned.graph import Graph, Multiply, evaluate, ours, shifted, xla
from models.pruned.networks import dlmc, networks
from models.pruned.timeline import COLUMNS, Span, spans
from models.pruned.timeline import LEGEND as SPANS_LEGEND
from models.pruned.timeline import cells as span_cells

NAMES = ("resnet50", "mobilenet", "vgg19", "yolov8n", "encoder", "decoder")
XLA, OTHER, OURS = "XLA", "onnxruntime", "jaxsparse"
#: Of the largest output.
TOLERANCE = {"float32": 2e-5, "bfloat16": 6e-2}
PAUSE, IN_A_ROW = 0.03, 2
LEGEND = (
    "onnx: onnxruntime; ours: jaxsparse. MB: kernels as they are held, inputs, results and what "
    "XLA allocates between. Times are {of} of calls of all forms in turns, in one process.\n"
    "XLA computes depthwise convolutions as sums of shifted images, and all forms but onnxruntime "
    "pool in that way: on a CPU XLA's own operations for these take many times as long."
)


class Row(NamedTuple):
    """One network: milliseconds by form, MB of XLA and of ours, the largest error of a form over
    the largest output; kinds of node, where they were asked for.
    """

    network: str
    weights: int
    kept: int
    times: dict[str, float]
    memory: dict[str, float]
    error: float
    spans: list[Span]

    @property
    def over(self) -> dict[str, float]:
        """How many times as fast as the other forms ours is."""
        return {form: t / self.times[OURS] for form, t in self.times.items() if form != OURS}


class Result(NamedTuple):
    """The rows, and the picture."""

    rows: list[Row]
    picture: Path


def frozen(graph: Graph, dtype: str) -> dict[str, tuple[js.PrunedWeight, jax.Array]]:
    """Every layer's kernel, inspected, and its bias."""
    groups = {node.output: node.static.get("groups", 1) for node in graph.nodes}
    found = {}
    for name, layer in graph.layers.items():
        kernel = layer.kernel.astype(jnp.dtype(dtype))
        if kernel.ndim == 2:
            plan = js.pruned.inspect(kernel)
        else:
            plan = js.pruned.inspect(kernel, kind="conv", groups=groups[name])
        found[name] = plan, jnp.asarray(layer.bias, dtype)
    return found


def constant_bytes(text: str) -> int:
    """Bytes of the constants of a compiled program."""
    found = re.findall(r"= [a-z]*(\d+)\[([\d,]*)\]\S* constant\(", text)
    shapes = [(int(bits), [int(n) for n in sides.split(",") if n]) for bits, sides in found]
    return sum(max(bits // 8, 1) * math.prod(sides) for bits, sides in shapes)


def compiled(graph: Graph, inputs: Mapping[str, jax.Array], multiply: Multiply) -> Any:
    """The network with dense kernels as operands: the compiled call, and its first operand."""
    dtype = next(iter(inputs.values())).dtype
    dense = {
        name: (jnp.asarray(layer.kernel, dtype), jnp.asarray(layer.bias, dtype))
        for name, layer in graph.layers.items()
    }
    run = jax.jit(lambda weights, xs: evaluate(graph, weights, xs, multiply))
    return run.lower(dense, inputs).compile(), dense


def other_runtime(
    graph: Graph, batch: int, inputs: Mapping[str, np.ndarray]
) -> Callable[[], Sequence[np.ndarray]] | None:
    """A call through onnxruntime; None where it is not installed."""
    try:
        from models.pruned.export import onnxruntime_call

        return onnxruntime_call(graph, batch, inputs)
    except ImportError as error:
        console.print(f"without onnxruntime: {error}", markup=False)
        return None


def difference(got: Sequence[Any], want: Sequence[np.ndarray], first: bool) -> float:
    """The largest difference over the largest value, of all results; `first`: images of `got` have
    their channels first.
    """
    worst = 0.0
    for a, b in zip(got, want, strict=True):
        array = np.asarray(a, np.float32)
        array = array.transpose(0, 2, 3, 1) if first and array.ndim == 4 else array
        worst = max(worst, float(np.abs(array - b).max() / np.abs(b).max()))
    return worst if np.isfinite(worst) else math.inf


def measure(graph: Graph, batch: int, dtype: str, repeats: int, least: bool, timeline: bool) -> Row:
    """One network in all forms; times are medians of the turns, or the `least`.

    Raises:
        AssertionError: when the outputs of two forms differ.
    """
    rng, gpu = np.random.default_rng(1), jax.default_backend() == "gpu"
    images = {
        name: rng.standard_normal((batch, *shape), np.float32)
        for name, shape in graph.inputs.items()
    }
    inputs = {name: jnp.asarray(x, dtype) for name, x in images.items()}
    # A GPU multiplies float32 in TF32 otherwise, where pruned single weights gain nothing.
    precision = "highest" if dtype == "float32" else None
    dense_layer = functools.partial(xla if gpu else shifted, precision=precision)
    theirs, dense = compiled(graph, inputs, dense_layer)
    plans, layer = frozen(graph, dtype), functools.partial(ours, precision=precision)
    mine = jax.jit(lambda xs: evaluate(graph, plans, xs, layer)).lower(inputs).compile()
    memory = {XLA: peak_of(theirs), OURS: peak_of(mine) + constant_bytes(mine.as_text())}
    calls: dict[str, Callable[[], Any]] = {XLA: functools.partial(theirs, dense, inputs)}
    other = None if gpu or dtype != "float32" else other_runtime(graph, batch, images)
    if other is not None:
        calls[OTHER] = other
    calls[OURS] = functools.partial(mine, inputs)
    want = [np.asarray(y, np.float32) for y in calls[XLA]()]
    errors = {form: difference(call(), want, form == OTHER) for form, call in calls.items()}
    error = max(errors.values())
    assert error <= TOLERANCE[dtype], f"{graph.name}: the outputs differ: {errors}"
    of = min if least else statistics.median
    times = time_together(calls, repeats, None, IN_A_ROW, PAUSE, of)
    kernels = [layer.kernel for layer in graph.layers.values()]
    kept = sum(plan.pattern.entries for plan, _ in plans.values())
    name = graph.name if batch == 1 else f"{graph.name}, batch {batch}"
    megabytes = {form: size / 2**20 for form, size in memory.items()}
    forms = {XLA: (dense, dense_layer), OURS: (plans, layer)}
    found = spans(graph, inputs, forms) if timeline else []
    return Row(name, sum(k.size for k in kernels), kept, times, megabytes, error, found)


def cells(row: Row) -> list[str]:
    """The row of the table."""
    times = [f"{row.times[form]:.2f}" if form in row.times else "" for form in (XLA, OTHER, OURS)]
    over = [f"{row.over[form]:.2f}x" if form in row.over else "" for form in (XLA, OTHER)]
    memory = [f"{row.memory[form]:.1f}" for form in (XLA, OURS)]
    weights = [f"{row.weights / 1e6:.1f}", f"{100 * (1 - row.kept / row.weights):.1f}"]
    return [row.network, *weights, *times, *over, *memory]


def draw(rows: Sequence[Row], out: Path) -> Path:
    """Speed-ups and memory by network."""
    figure = Figure(figsize=(11, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    places, forms = np.arange(len(rows)), [f for f in (XLA, OTHER) if f in rows[0].over]
    for i, form in enumerate(forms):
        at = places + 0.4 * (i - (len(forms) - 1) / 2)
        left.bar(at, [row.over.get(form, 0.0) for row in rows], 0.38, label=f"over {form}")
    left.axhline(1.0, color="black", linewidth=0.8)
    left.set(title="times as fast")
    for i, form in enumerate((XLA, OURS)):
        right.bar(places + 0.4 * (i - 0.5), [row.memory[form] for row in rows], 0.38, label=form)
    right.set(title="weights, inputs, results and what lies between [MB]", yscale="log")
    for axes in (left, right):
        axes.set_xticks(places, [row.network.replace(", ", ",\n") for row in rows], fontsize=8)
        axes.legend()
    return save(figure, out, "pruned_networks.png")


def run(
    chosen: Sequence[str],
    out: Path,
    quick: bool = False,
    full: bool = False,
    batches: Sequence[int] = (1,),
    sparsity: float = 0.9,
    dtype: str = "float32",
    repeats: int = 9,
    least: bool = False,
    timeline: bool = False,
) -> Result:
    """The demo."""
    makers, rows = networks(sparsity, quick, full), []
    _, file = dlmc(sparsity)
    where = "random" if file is None else f"those of {file.name} in ResNet-50, random elsewhere"
    console.print(f"patterns: {where}; {100 * sparsity:g} % pruned", markup=False)
    for name in chosen:
        with working(f"drawing and pruning {name}"):
            graph = makers[name]()
        for batch in batches:
            with working(f"compiling, comparing and timing {graph.name}, batch {batch}"):
                rows.append(measure(graph, batch, dtype, repeats, least, timeline))
            over = ", ".join(f"{x:.2f}x {form}" for form, x in rows[-1].over.items())
            console.print(f"{rows[-1].network}: {rows[-1].times[OURS]:.2f} ms, {over}")
    for row in rows:
        if row.spans:
            parts = span_cells(row.spans, row.times)
            print_table(f"Time line of {row.network}", COLUMNS, parts, SPANS_LEGEND)
    columns = ["network", "kernels\n[M]", "zeros\n[%]", "XLA\n[ms]", "onnx\n[ms]", "ours\n[ms]"]
    columns += ["over\nXLA", "over\nonnx", "XLA\n[MB]", "ours\n[MB]"]
    legend = LEGEND.format(of="the least" if least else "medians")
    title = f"Pruned networks, batch {', '.join(map(str, batches))}, {dtype}"
    print_table(title, columns, [cells(row) for row in rows], legend, total=False)
    worst = max(row.error for row in rows)
    console.print(f"greatest difference of an output from XLA's: {worst:.1e} of the largest")
    return Result(rows, draw(rows, out))


def main(argv: Sequence[str] | None = None) -> Result:
    """The command line."""
    made = parser(__doc__ or "")
    made.add_argument("--full", action="store_true", help="batch 1 and 8, and a wide decoder")
    made.add_argument("--networks", nargs="+", choices=NAMES, default=list(NAMES))
    made.add_argument("--batch", type=int, nargs="+", metavar="N", help="samples of a call")
    made.add_argument("--sparsity", type=float, default=0.9, help="of the weights (default: 0.9)")
    made.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    made.add_argument("--repeats", type=int, metavar="N", help="turns of each form (default: 9)")
    text = "times are those of the fastest turn: for a machine that other programs use"
    made.add_argument("--least", action="store_true", help=text)
    text = "time each kind of node alone, and print what remains of the whole network's time"
    made.add_argument("--timeline", action="store_true", help=text)
    chosen = made.parse_args(argv)
    batches = chosen.batch or ([1, 8] if chosen.full else [1])
    repeats = chosen.repeats or (2 if chosen.quick else 9)
    sizes = chosen.quick, chosen.full, batches
    options = chosen.sparsity, chosen.dtype, repeats, chosen.least, chosen.timeline
    return run(chosen.networks, chosen.out, *sizes, *options)


if __name__ == "__main__":
    main()
