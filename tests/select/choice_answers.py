"""The answers to `choice_problems`: what each op chooses, asked of the choosers.

`python tests/select/choice_answers.py` (with tests/select and the package on the path) writes
`choices.json` anew, after a change of rates, costs or rules that is meant to change choices.
"""

import contextlib
import functools
import importlib.util
import itertools
import json
import tempfile
import tomllib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from choice_problems import Asked, on, pattern, problems

import jaxsparse as js
from jaxsparse.core.geometry import Geometry, resolve_padding
from jaxsparse.pruned.executor import Problem as Call
from jaxsparse.pruned.executors.choice import EXECUTORS
from jaxsparse.select.bounded import BoundedProblem, NetworkProblem
from jaxsparse.select.choice import Choice
from jaxsparse.select.grouped_matmul import GatedProblem, GroupedProblem
from jaxsparse.select.masked_conv.dkernel import DkernelProblem
from jaxsparse.select.masked_conv.estimate import estimated
from jaxsparse.select.masked_conv.problem import ConvProblem
from jaxsparse.select.masked_conv.scale import scaled
from jaxsparse.select.masked_conv_stack import StackProblem
from jaxsparse.select.masked_matmul import MatmulProblem
from jaxsparse.select.pruned import PrunedProblem
from jaxsparse.select.select import _chosen, choose
from jaxsparse.select.sparse_attention import AttentionProblem
from jaxsparse.select.sparse_ffn.chooser import FfnProblem


def itemsize(dtype: str) -> int:
    """Bytes of an element."""
    return 4 if dtype == "float32" else 2


def out_shape(facts: dict[str, Any]) -> tuple[int, int, int]:
    """(B, Ho, Wo) of a convolution."""
    x_shape, window = facts["x_shape"], facts["kernel_shape"][:2]
    height, width = facts["geometry"].out_size(x_shape[1:3], window)
    return x_shape[0], height, width


def conv(asked: Asked) -> ConvProblem:
    """Of `masked_conv`."""
    f = asked.facts
    return ConvProblem(
        asked.platform,
        f["x_shape"],
        f["kernel_shape"],
        out_shape(f),
        f["dtype"],
        itemsize(f["dtype"]),
        f["geometry"],
        f["precision"],
        f["tiles"],
        f["align"],
        _overflows(f),
        f["masked_input"],
        f["fills"],
        f["implementation"] is not None,
    )


def _overflows(f: dict[str, Any]) -> bool:
    """Whether a list with room for that share of the grid's tiles may have too little."""
    (images, height, width), (th, tw) = out_shape(f), f["tiles"][0]
    room = images * -(-height // th) * -(-width // tw)
    most = images * height * width if f["align"] == "component" else room
    return (int(room * f["room"]) if f["room"] < 1 else room) < most


def dkernel(asked: Asked) -> DkernelProblem:
    """Of the gradient of a convolution's kernel."""
    f = asked.facts
    window, channels, outputs = f["kernel_shape"][:2], f["x_shape"][3], f["kernel_shape"][3]
    dtypes = f["dtype"], f["g_dtype"], itemsize(f["dtype"])
    groups, pixels = f["geometry"].groups, int(np.prod(out_shape(f)))
    return DkernelProblem(window, channels, outputs, pixels, groups, *dtypes)


def stack(asked: Asked) -> StackProblem:
    """Of `masked_conv_stack`; a list has room for every tile."""
    f = asked.facts
    images, height, width, _ = f["x_shape"]
    capacity = images * -(-height // f["tile"][0]) * -(-width // f["tile"][1])
    outputs = f["outputs"] if f["windows"] else 0
    index = f["tile"], f["align"], capacity
    return StackProblem(f["x_shape"], f["dtype"], f["windows"], outputs, True, *index)


def grouped(asked: Asked) -> GroupedProblem:
    """Of `grouped_matmul`."""
    f = asked.facts
    sizes = f["groups"], f["rows"], f["outputs"], f["out_rows"]
    dtype = f["dtype"], itemsize(f["dtype"])
    return GroupedProblem(asked.platform, f["lhs"], *dtype, *sizes, f["precision"])


def gated(asked: Asked) -> GatedProblem:
    """Of `grouped_gated`."""
    f = asked.facts
    rows = f["lhs"][0] if f["gather"] is None else f["gather"]
    sizes = f["groups"], rows, f["outputs"], rows
    product = GroupedProblem(
        asked.platform, f["lhs"], f["dtype"], itemsize(f["dtype"]), *sizes, "default"
    )
    alike = f["weights"] in ("same", f["dtype"])
    return GatedProblem(product, alike, f["indices"] == "int32", 2**31 - 1024)


def matmul(asked: Asked) -> MatmulProblem:
    """Of `masked_matmul`."""
    f = asked.facts
    masks = tuple(f["masks"][name] for name in ("a", "b", "out"))
    lists = {s[0] for s in (f["a"], f["b"], *masks) if s is not None}
    return MatmulProblem(
        asked.platform,
        f["a"],
        f["b"],
        masks,
        f["blocks"],
        max(lists),
        sum(int(np.prod(s)) for s in masks if s is not None),
        f["dtype"],
        itemsize(f["dtype"]),
        f["precision"],
        f["turned"],
        f["density"],
        f["implementation"] is not None,
    )


@functools.cache
def _pattern(x_shape: Any, outputs: int, each: int, seed: int, window: Any) -> Any:
    if window is None:
        return pattern(x_shape[1], outputs, each, seed)
    return pattern(x_shape[3] * window[0] * window[1], outputs, each, seed, window=window)


def pruned(asked: Asked) -> PrunedProblem:
    """Of `pruned_matmul` and `pruned_conv`."""
    f = asked.facts
    shape, window, geometry = f["x_shape"], f["window"], None
    if window is not None:
        pads = resolve_padding("SAME", shape[1:3], window, f["strides"], (1, 1))
        geometry = Geometry(f["strides"], pads, (1, 1), (1, 1), 1)
    kept = _pattern(shape, f["outputs"], f["each"], f["seed"], window)
    dtypes = f["dtype"], f["dtype"], f["precision"]
    call = Call(kept, asked.platform, shape, *dtypes, geometry, f["channels_first"])
    sizes = call.positions, kept.n_in, kept.n_out, kept.entries, kept.size
    ways = EXECUTORS[asked.platform]
    return PrunedProblem(asked.op, call, ways, sizes, f["constant"], f["tuned"])


def bounded(asked: Asked) -> BoundedProblem:
    """Of `bounded_matmul`."""
    return BoundedProblem(asked.platform, **asked.facts)


def network(asked: Asked) -> NetworkProblem:
    """Of `bounded_network`."""
    return NetworkProblem(asked.platform, **asked.facts)


def attention(asked: Asked) -> AttentionProblem:
    """Of `sparse_attention`."""
    return AttentionProblem(asked.platform, **asked.facts)


def ffn(asked: Asked) -> FfnProblem:
    """Of `sparse_ffn`."""
    return FfnProblem(asked.platform, **asked.facts)


PROBLEMS = {
    "masked_conv": conv,
    "masked_conv_dkernel": dkernel,
    "masked_conv_stack": stack,
    "grouped_matmul": grouped,
    "grouped_gated": gated,
    "masked_matmul": matmul,
    "pruned_matmul": pruned,
    "pruned_conv": pruned,
    "bounded_matmul": bounded,
    "bounded_network": network,
    "sparse_attention": attention,
    "sparse_ffn": ffn,
}


def answer(asked: Asked) -> Choice:
    """What is chosen."""
    with on(asked.device), js.config(selection=asked.selection):
        return choose(asked.op, PROBLEMS[asked.op](asked))


@contextlib.contextmanager
def every_table() -> Iterator[None]:
    """The variants of both platforms, whatever this build has kernels for, and two CPU workers."""
    root = Path(__file__).parents[2]
    spec = importlib.util.spec_from_file_location("_tables", root / "cmake/generate_variants.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as patches:
        for platform in ("cpu", "cuda"):
            for path in sorted((root / platform / "variants").glob("*.toml")):
                script.generate(tomllib.loads(path.read_text()), Path(folder) / platform)
        for name in WORKERS:
            patches.enter_context(mock.patch(name, return_value=2))
        patches.enter_context(mock.patch.object(variants, "_folder", return_value=Path(folder)))
        _forget()
        try:
            yield
        finally:
            _forget()


#: What says how many workers a CPU has.
_OF_CPU = ("executors.dense", "executors.dots", "executors.depthwise", "strips")
WORKERS = tuple(f"jaxsparse.pruned.{module}.workers" for module in _OF_CPU)
variants = importlib.import_module("jaxsparse.select.variants")


def _forget() -> None:
    """Drop what follows from the tables of variants."""
    for kept in (variants.table, _chosen, estimated, scaled):
        kept.cache_clear()


def short(choice: Choice) -> str:
    """A choice in a line: how, the variants in order, the reasons; of costs a checksum."""
    if choice.candidates:
        rows = [[round(float(v), 3) for v in c.cost] for c in choice.candidates]
        names = [f"{c.variant}/{c.list}" for c in choice.candidates]
        names.append(f"{zlib.crc32(json.dumps(rows).encode()):08x}")
    else:
        names = [f"{r.variant}@{r.up_to:.3f}" for r in choice.rungs]
    against = choice.against_device.name if choice.against_device else ""
    return " ".join((choice.how, ",".join(names), choice.reason.name, against)).strip()


def answers() -> dict[str, list[str]]:
    """Op -> a line for each of its problems, in order."""
    with every_table():
        each = [(asked.op, short(answer(asked))) for asked in problems()]
    ordered = sorted(each, key=lambda pair: pair[0])
    return {op: [a for _, a in group] for op, group in itertools.groupby(ordered, lambda p: p[0])}


STORED = Path(__file__).with_name("choices.json")


def packed(found: dict[str, list[str]]) -> str:
    """Answers as JSON: of each op the lines that occur, and their places in order."""
    told = {}
    for op, lines in found.items():
        known = list(dict.fromkeys(lines))
        told[op] = {"lines": known, "order": " ".join(str(known.index(x)) for x in lines)}
    return json.dumps(told, indent=1) + "\n"


def unpacked(text: str) -> dict[str, list[str]]:
    """What `packed` was given."""
    return {
        op: [each["lines"][int(i)] for i in each["order"].split()]
        for op, each in json.loads(text).items()
    }


if __name__ == "__main__":
    STORED.write_text(packed(answers()))
