"""The problems whose choices `choices.json` holds: every case of `jaxsparse.testing` and random
ones, on the devices of `DEVICES`. The order and the numbers do not depend on the machine.
"""

import contextlib
import dataclasses
import random
import types
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from jaxsparse.core.geometry import Geometry, resolve_padding
from jaxsparse.pruned.pattern import Pattern
from jaxsparse.testing.cases import CASES
from jaxsparse.testing.product_cases import GROUPED_CASES, MATMUL_CASES
from jaxsparse.testing.pruned_cases import PRUNED_CONV_CASES, PRUNED_MATMUL_CASES

DTYPES = ("float32", "bfloat16", "float16")
#: Name -> what JAX would say of the machine's GPU; None: this machine's CPU.
DEVICES: dict[str, dict[str, Any] | None] = {
    "cpu": None,
    "h200": {
        "device_kind": "NVIDIA H200",
        "compute_capability": "9.0",
        "core_count": 132,
        "shared_memory_per_block_optin": 227 << 10,
    },
    "a100": {
        "device_kind": "NVIDIA A100",
        "compute_capability": "8.0",
        "core_count": 108,
        "shared_memory_per_block_optin": 163 << 10,
    },
}
SELECTIONS = (None, None, None, "static", "device", "switch")


@dataclasses.dataclass(frozen=True)
class Asked:
    """One question: an op, its arguments, and what is in force when it is asked."""

    op: str
    device: str
    selection: str | None
    facts: dict[str, Any]

    @property
    def platform(self) -> str:
        """Whose kernels are chosen among."""
        return "cpu" if self.device == "cpu" else "cuda"


@contextlib.contextmanager
def on(device: str) -> Iterator[None]:
    """JAX as on a machine with that GPU; on this one's where it is the CPU."""
    facts = DEVICES[device]
    if facts is None:
        yield
        return
    real, gpu = jax.devices, types.SimpleNamespace(**facts)
    jax.devices = lambda platform=None: [gpu] if platform == "cuda" else real(platform)
    try:
        yield
    finally:
        jax.devices = real


def struct(shape: tuple[int, ...], dtype: str) -> jax.ShapeDtypeStruct:
    """An array that is not there."""
    return jax.ShapeDtypeStruct(shape, np.dtype(dtype))


def _devices(rng: random.Random) -> str:
    return rng.choice(("cpu", "h200", "h200", "a100"))


def _conv_geometry(rng: random.Random) -> dict[str, Any]:
    """A random convolution."""
    groups = rng.choice((1, 1, 1, 1, 2, 4))
    per, each = rng.choice((1, 3, 4, 5, 8, 16, 32, 33, 64, 128, 256)), rng.choice((1, 3, 8, 16, 64))
    window = rng.choice(((1, 1), (3, 3), (3, 3), (2, 2), (5, 5), (9, 9), (1, 3)))
    strides = rng.choice(((1, 1), (1, 1), (2, 2), (2, 1), (9, 9)))
    dilation = rng.choice(((1, 1), (1, 1), (2, 2)))
    side = rng.choice((1, 7, 14, 28, 40, 56, 128, 256, 512))
    outputs = groups * (per if rng.random() < 0.5 else each)
    x_shape = (rng.choice((1, 1, 2, 8, 64)), side, rng.choice((side, side, 33)), per * groups)
    padding = resolve_padding("SAME", x_shape[1:3], window, strides, dilation)
    up = rng.choice(((1, 1), (1, 1), (1, 1), (2, 2)))
    geometry = Geometry(strides, padding, dilation, up, groups)
    return {"geometry": geometry, "x_shape": x_shape, "kernel_shape": (*window, per, outputs)}


def _conv_call(rng: random.Random) -> dict[str, Any]:
    tiles = rng.choice((((1, 1),), ((1, 1), (8, 8)), ((8, 8),), ((2, 4),), ((16, 8),), ((3, 5),)))
    return {
        "dtype": rng.choice(DTYPES),
        "precision": rng.choice(("default", "default", "highest")),
        "implementation": rng.choice((None, None, None, "own")),
        "tiles": tiles,
        "room": rng.choice((1.0, 1.0, 1.0, 0.3)),
        "align": rng.choice(("grid",) * 7 + ("component",)),
        "masked_input": rng.random() < 0.15,
        "fills": rng.random() < 0.7,
    }


def _convs(rng: random.Random) -> Iterator[Asked]:
    plain = {
        "precision": "default",
        "implementation": None,
        "tiles": ((1, 1), (8, 8)),
        "room": 1.0,
        "align": "grid",
        "masked_input": False,
        "fills": True,
    }
    for case in CASES.values():
        shapes = {"geometry": case.geometry, "x_shape": case.x_shape}
        shapes["kernel_shape"] = case.kernel_shape
        for dtype in DTYPES[:2]:
            for device in DEVICES:
                yield Asked("masked_conv", device, None, shapes | plain | {"dtype": dtype})
    for _ in range(300):
        facts = _conv_geometry(rng) | _conv_call(rng)
        yield Asked("masked_conv", _devices(rng), rng.choice(SELECTIONS), facts)


def _dkernels(rng: random.Random) -> Iterator[Asked]:
    for _ in range(200):
        facts = _conv_geometry(rng)
        facts["dtype"] = rng.choice(DTYPES)
        if rng.random() < 0.6:  # what tensor cores take
            facts["geometry"] = dataclasses.replace(facts["geometry"], groups=1)
            channels, outputs = (rng.choice((64, 128, 256, 512)) for _ in range(2))
            facts["x_shape"] = (*facts["x_shape"][:3], channels)
            facts["kernel_shape"] = (*facts["kernel_shape"][:2], channels, outputs)
        facts["g_dtype"] = facts["dtype"] if rng.random() < 0.9 else "float32"
        yield Asked("masked_conv_dkernel", rng.choice(("h200", "a100")), None, facts)


def _stacks(rng: random.Random) -> Iterator[Asked]:
    for _ in range(150):
        channels, window = rng.choice((16, 32, 32, 64, 64)), rng.choice(((1, 1), (3, 3), (3, 3)))
        layers = rng.choice((0, 1, 2, 4, 12, 13))
        last = rng.choice((channels, 8, 12, 64))
        facts = {
            "x_shape": (rng.choice((0, 1, 2)), 40, 40, channels),
            "dtype": rng.choice(("float32", "bfloat16", "bfloat16", "float16")),
            "windows": tuple(rng.choice((window,) * 20 + ((5, 5),)) for _ in range(layers)),
            "outputs": last,
            "tile": rng.choice(((8, 8), (8, 8), (16, 8), (1, 1))),
            "align": rng.choice(("grid",) * 5 + ("component",)),
        }
        yield Asked("masked_conv_stack", rng.choice(("h200", "a100")), None, facts)


def _grouped(rng: random.Random) -> Iterator[Asked]:
    for case in GROUPED_CASES.values():
        rows = case.tokens * case.top_k
        facts = {
            "lhs": (case.tokens, case.depth),
            "outputs": case.outputs,
            "groups": case.experts,
            "rows": rows,
            "out_rows": rows,
            "precision": "default",
        }
        for dtype in DTYPES:
            for device in DEVICES:
                yield Asked("grouped_matmul", device, None, facts | {"dtype": dtype})
    for _ in range(200):
        lhs = (rng.choice((0, 1, 96, 1024, 4096)), rng.choice((8, 24, 33, 64, 768, 4096)))
        facts = {
            "lhs": lhs,
            "outputs": rng.choice((8, 40, 33, 128, 256, 1024, 14336)),
            "groups": rng.choice((1, 4, 8, 64, 128)),
            "rows": rng.choice((lhs[0], lhs[0], 2 * lhs[0], 50)),
            "out_rows": rng.choice((lhs[0], 4096)),
            "precision": rng.choice(("default", "default", "highest")),
            "dtype": rng.choice(DTYPES),
        }
        yield Asked("grouped_matmul", _devices(rng), rng.choice(SELECTIONS), facts)


def _gated(rng: random.Random) -> Iterator[Asked]:
    for _ in range(150):
        rows, depth = rng.choice((0, 1, 96, 4096)), rng.choice((8, 33, 64, 768))
        facts = {
            "lhs": (rows, depth),
            "outputs": rng.choice((8, 33, 128, 3072)),
            "groups": rng.choice((1, 8, 128)),
            "dtype": rng.choice(DTYPES),
            "weights": rng.choice(("same", "same", "same", "float16")),
            "gather": rng.choice((None, None, 2 * rows)),
            "indices": rng.choice(("int32", "int32", "int32", "uint32")),
        }
        yield Asked("grouped_gated", rng.choice(("h200", "a100")), None, facts)


def _matmuls(rng: random.Random) -> Iterator[Asked]:
    plain = {"turned": False, "density": None, "precision": "default", "implementation": None}
    for case in MATMUL_CASES.values():
        masks = {
            name: (1, *case.mask_shape) if name == case.masked else None
            for name in ("a", "b", "out")
        }
        shapes = {"a": (1, case.m, case.k), "b": (1, case.k, case.n), "masks": masks}
        facts = shapes | plain | {"blocks": (case.block,) * 3}
        for dtype in DTYPES[:2]:
            for device in DEVICES:
                yield Asked("masked_matmul", device, None, facts | {"dtype": dtype})
    for _ in range(350):
        m, k, n = (rng.choice((8, 33, 64, 512, 2048, 4096)) for _ in range(3))
        lists = rng.choice((1, 1, 2, 8))
        blocks = tuple(rng.choice(((1, 1), (32, 1), (32, 64), (8, 8), (64, 128))) for _ in range(3))
        masks = {}
        for (name, size), block in zip(
            (("a", (m, k)), ("b", (k, n)), ("out", (m, n))), blocks, strict=True
        ):
            shape = tuple(-(-s // b) for s, b in zip(size, block, strict=True))
            masks[name] = (rng.choice((1, lists)), *shape) if rng.random() < 0.4 else None
        facts = {
            "a": (lists, m, k),
            "b": (rng.choice((1, lists)), k, n),
            "masks": masks,
            "blocks": blocks,
            "dtype": rng.choice(DTYPES),
            "precision": rng.choice(("default", "default", "highest")),
            "turned": rng.random() < 0.3,
            "density": rng.choice((None, None, 0.1, 0.2, 0.6, 0.9)),
            "implementation": rng.choice((None, None, None, "own")),
        }
        yield Asked("masked_matmul", _devices(rng), rng.choice(SELECTIONS), facts)


def pattern(n_in: int, n_out: int, each: int, seed: int, **more: Any) -> Pattern:
    """Every output keeps about `each` inputs: half of them neighbours, half in vectors of 8."""
    rng = np.random.default_rng(seed)
    rows = []
    for out in range(n_out):
        if seed % 2 and out % 8:
            rows.append(rows[-1])
            continue
        first = int(rng.integers(0, n_in - each + 1))
        rows.append(np.sort(rng.permutation(n_in)[:each]) if seed % 3 else first + np.arange(each))
    indptr = np.cumsum([0, *(len(r) for r in rows)])
    return Pattern(n_in, n_out, indptr, np.concatenate([*rows, np.zeros(0, int)]), **more)


def _pruned(rng: random.Random) -> Iterator[Asked]:
    asked: list[tuple[tuple[int, ...], int, int, tuple[int, int] | None, tuple[int, int]]] = []
    for case in PRUNED_MATMUL_CASES.values():
        asked.append((case.x_shape, case.outputs, max(case.inputs // 10, 1), None, (1, 1)))
    for case in PRUNED_CONV_CASES.values():
        taps, stride = case.window**2, (case.stride, case.stride)
        each = max(case.channels * taps // 10, 1)
        asked.append((case.x_shape, case.outputs, each, (case.window, case.window), stride))
    for _ in range(110):
        n_in, n_out = (rng.choice((24, 30, 64, 256, 512, 1024)) for _ in range(2))
        rows = rng.choice((1, 4, 8, 16, 49, 64, 196, 784, 2048, 8192))
        asked.append(((rows, n_in), n_out, max(int(n_in * rng.choice((0.02, 0.1, 0.5))), 1), None,
                      (1, 1)))  # fmt: skip
    for _ in range(40):
        channels, window = rng.choice((3, 16, 64)), rng.choice(((1, 1), (3, 3), (2, 3)))
        x_shape = (rng.choice((1, 4)), *(rng.choice((7, 14, 28)),) * 2, channels)
        each = max(int(channels * window[0] * window[1] * rng.choice((0.1, 0.3))), 1)
        asked.append((x_shape, rng.choice((16, 64)), each, window, rng.choice(((1, 1), (2, 2)))))
    for seed, (x_shape, outputs, each, window, strides) in enumerate(asked):
        facts = {
            "x_shape": x_shape,
            "outputs": outputs,
            "each": each,
            "window": window,
            "strides": strides,
            "seed": seed,
            "dtype": rng.choice(("float32", "float32", "bfloat16")),
            "precision": rng.choice(("default", "highest")),
            "channels_first": window is not None and rng.random() < 0.4,
            "constant": rng.random() < 0.7,
            "tuned": rng.choice((None, None, None, "dense", "strips", "rows")),
        }
        op = "pruned_matmul" if window is None else "pruned_conv"
        for device in DEVICES if seed % 3 == 0 else ("cpu", rng.choice(("h200", "a100"))):
            yield Asked(op, device, rng.choice((None, None, "static", "switch")), facts)


def _bounded(rng: random.Random) -> Iterator[Asked]:
    for _ in range(150):
        n_out = rng.choice((64, 500, 1024, 4096, 16_384, 400_000))
        distinct = min(n_out, rng.choice((64, 1024, n_out)))
        facts = {
            "batch": rng.choice((1, 8, 60, 128, 1000, 60_000)),
            "n_in": rng.choice((64, 1024, 4096, 50_000)),
            "n_out": n_out,
            "distinct": distinct,
            "entries": distinct * rng.choice((4, 12, 32, 200)),
            "segment": rng.choice((1, 32, 256, n_out)),
            "record": rng.random() < 0.7,
            "dataflow": rng.choice((None, None, None, "row", "slab", "column", "converged")),
        }
        yield Asked("bounded_matmul", _devices(rng), None, facts)
    for _ in range(50):
        depth, bundles = rng.choice((1, 1, 2, 120)), rng.choice((0, 0, 1, 2, 3))
        facts = {"batch": 8, "n_in": 64, "n_out": 64, "depth": depth, "widest": 64}
        yield Asked("bounded_network", _devices(rng), None, facts | {"bundles": bundles})


def _attentions(rng: random.Random) -> Iterator[Asked]:
    for _ in range(120):
        depth, block = rng.choice((32, 64, 64, 128, 128, 192, 256, 320)), (16, 64, 128, 256)
        facts = {
            "q": (rng.choice((1, 8)), rng.choice((1, 512, 8192, 131_072)), 16, depth),
            "k": (1, rng.choice((512, 8192, 131_072)), rng.choice((1, 4, 16)), depth),
            "v_depth": rng.choice((depth, depth, 128)),
            "block_size": (rng.choice(block), rng.choice(block)),
            "blocks": rng.choice((16, 4096)),
            "slots": rng.choice((1, 4096, 2**24)),
            "dtype": rng.choice(DTYPES),
            "precision": rng.choice(("default", "default", "highest")),
            "scale": rng.choice((0.125, 0.125, 0.0)),
            "added": rng.random() < 0.2,
            "own": rng.random() < 0.3,
        }
        yield Asked("sparse_attention", _devices(rng), rng.choice(SELECTIONS), facts)


def _ffns(rng: random.Random) -> Iterator[Asked]:
    for _ in range(60):
        d, f = rng.choice(((768, 3072), (2048, 5632), (33, 100)))
        facts = {
            "sizes": (rng.choice((1, 4, 5, 8, 9, 4096)), rng.choice((d, d, 0)), f, d),
            "gated": rng.random() < 0.5,
            "top_k": rng.choice((0, 0, 64)),
            "dtype": rng.choice(DTYPES),
            "precision": rng.choice(("default", "highest")),
            "own": rng.random() < 0.3,
        }
        yield Asked("sparse_ffn", _devices(rng), rng.choice(SELECTIONS), facts)


MAKERS: tuple[Callable[[random.Random], Iterator[Asked]], ...] = (
    _convs,
    _dkernels,
    _stacks,
    _grouped,
    _gated,
    _matmuls,
    _pruned,
    _bounded,
    _attentions,
    _ffns,
)


def problems() -> list[Asked]:
    """All of them, in order."""
    return [asked for seed, make in enumerate(MAKERS) for asked in make(random.Random(seed))]
