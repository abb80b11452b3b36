"""Calls of the handlers of pruned weights: every executor, with some of its tiles."""

import functools
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from ffi.stand_in.loaded import Call
from ffi.stand_in.lowered import calls_of

import jaxsparse as js
from jaxsparse.core.geometry import Geometry
from jaxsparse.ops.pruned_matmul.run import Frozen, PrunedParams, call
from jaxsparse.pruned.executors.choice import EXECUTORS
from jaxsparse.pruned.executors.conv_tiles import best

#: (rows of x, inputs, outputs, share of weights that is kept).
PRODUCTS = [(1, 64, 40, 0.3), (2, 512, 256, 0.1), (4, 512, 64, 0.2), (8, 1024, 96, 0.1)]
PRODUCTS += [(16, 512, 128, 0.1), (32, 256, 256, 0.1), (64, 256, 64, 0.3), (300, 128, 128, 0.1)]
PRODUCTS += [(2000, 512, 512, 0.05)]
#: (image NHWC, window, outputs, stride).
IMAGES = [((2, 9, 10, 8), (3, 3), 24, 1), ((1, 28, 28, 16), (5, 5), 32, 2)]
IMAGES += [((8, 14, 14, 32), (3, 3), 64, 1), ((1, 64, 60, 3), (7, 7), 16, 2)]
DTYPES = {"float32": ("float32",), "bfloat16": ("bfloat16", "float32")}
DTYPES |= {"float16": ("float16", "float32")}


def problems() -> Iterator[tuple[Any, tuple[int, ...], str, PrunedParams]]:
    """Weights, shapes of x, dtypes and parameters."""
    rng = np.random.default_rng(0)
    plain: dict[str, Any] = {"activation": "relu", "precision": "highest"}
    fast: dict[str, Any] = {"activation": None, "precision": "default"}
    for dtype, outs in DTYPES.items():
        for m, k, n, share in PRODUCTS:
            w = rng.standard_normal((k, n)) * (rng.random((k, n)) < share)
            weight = js.pruned.inspect(w.astype(np.float32))
            for out in outs:
                frozen = Frozen(np.asarray(weight.values))
                options = fast if dtype == "float32" and m > 32 else plain
                params = PrunedParams(
                    weight.pattern, None, False, out_dtype=out, frozen=frozen, **options
                )
                yield weight, (m, k), dtype, params
        for shape, window, outputs, stride in IMAGES:
            w = rng.standard_normal((*window, shape[3], outputs))
            w *= rng.random(w.shape) < 0.2
            weight = js.pruned.inspect(w.astype(np.float32), kind="conv")
            top, left = (side // 2 for side in window)
            pads = ((top, top), (left, left))
            geometry = Geometry((stride, stride), pads, (1, 1), (1, 1), 1)
            for first in (False, True):
                params = PrunedParams(weight.pattern, geometry, first, out_dtype=dtype, **plain)
                given = (shape[0], shape[3], *shape[1:3]) if first else shape
                yield weight, given, dtype, params


def calls(count: int) -> Iterator[tuple[Call, str]]:
    """Each call, and the name of its executor; at most `count` tiles of an executor per problem."""
    for weight, shape, dtype, params in problems():
        x = jax.ShapeDtypeStruct(shape, np.dtype(dtype))
        problem = params.problem("cuda", x)
        for executor in EXECUTORS["cuda"]:
            if executor.name == "dense" or executor.reason_against(problem):
                continue
            known = (np.asarray(weight.values),) if executor.needs_values else ()
            for candidate in _candidates(executor, problem, count):
                packed = executor.pack(problem, candidate, *known)
                run = functools.partial(call, params, packed, bias=None)
                values = jax.ShapeDtypeStruct(weight.values.shape, weight.values.dtype)
                for found in calls_of(run, x, values):
                    yield found, executor.name


def _candidates(executor: Any, problem: Any, count: int) -> list[Any]:
    """`count` of an executor's tiles, from first to last; of `windows` also one for each kernel."""
    every = executor.candidates(problem)
    found = every[:: -(-len(every) // count)]
    if executor.name == "windows":
        kernels = {layout.tile.key[:2]: layout.tile.key for _, layout in reversed(best(problem))}
        found += kernels.values()
    return found
