"""`bounded_matmul` and whole networks on their native handlers: operands, attributes,
workspaces."""

import dataclasses
import math
import os
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxsparse.bounded.activations import Activations
from jaxsparse.bounded.bundles import BUNDLE, PANEL, PANEL_LAYERS
from jaxsparse.bounded.layer import Layer
from jaxsparse.ffi import ffi_call
from jaxsparse.recorder import Recorder
from jaxsparse.recorder.types import segment_count

_DATAFLOWS = {"row": 0, "slab": 1, "column": 2, None: 3}
_ALIGN = 64
_BLOCK = 16  # images of the CPU kernel's narrowest tile
_STATE = 1 << 20  # bytes of activations that one worker keeps in its cache
_TILE = 512
_PLAN = 2256  # bytes of a panel's plan


@dataclasses.dataclass(frozen=True)
class Single:
    """What `call` asks of its parameters: one code a row, the default dataflow."""

    segment: int
    dataflow: str | None = None
    record: bool = True


def call(p: Any, platform: str, acts: Activations, layer: Layer) -> Activations:
    """One layer: operands as in docs/kernels/contract.md."""
    batch, n_out = acts.values.shape[0], layer.n_out
    segments = segment_count(n_out, p.segment)
    scratch, codes = 0, acts.recorder.codes
    if platform == "cpu":
        if layer.n_in and codes.shape[1] == 0:
            codes = jnp.zeros((batch, segment_count(layer.n_in, acts.recorder.segment)), np.uint8)
        tile = cpu_tile(max(layer.n_in, layer.distinct), batch)
        scratch = _workers() * (tile * 4 * (layer.n_in + layer.distinct + 4) + 8 * _ALIGN)
    elif _DATAFLOWS[p.dataflow] >= 2:
        scratch = 4 * (batch + 2)
    values, found, _ = ffi_call(
        "jaxsparse_bounded_matmul",
        [((batch, n_out), np.float32), ((batch, segments), np.uint8), ((scratch,), np.uint8)],
        acts.values,
        codes,
        layer.starts,
        layer.indices,
        layer.weights,
        layer.bias,
        _places(layer.expand),
        segment_in=acts.recorder.segment,
        upper_in=float(acts.recorder.upper),
        segment=p.segment,
        upper=float(layer.upper),
        record=int(p.record),
        zero_stays=int(layer.zero_stays),
        keeps_upper=int(layer.keeps_upper(acts.recorder.upper)),
        dataflow=_DATAFLOWS[p.dataflow],
    )
    return Activations(values, Recorder(found, p.segment, layer.upper))


def call_network(net: Any, platform: str, x: Any) -> Activations:
    """A whole stack in one call; a single layer is one of `bounded_matmul`'s."""
    batch = x.shape[0]
    if platform == "cuda" and net.depth == 1 and not net.bundles:
        return _call_single(net, x)
    if platform == "cpu":
        tile = cpu_tile(net.widest, batch)
        scratch = _workers() * (
            4 * tile * (2 * net.widest + 8) + 4 * _BLOCK * net.n_in + 16 * _ALIGN
        )
    else:
        scratch = network_scratch(net, batch)
    values, codes, _ = ffi_call(
        "jaxsparse_bounded_network",
        [((batch, net.n_out), np.float32), ((batch, 1), np.uint8), ((scratch,), np.uint8)],
        x,
        net.table,
        net.starts,
        net.indices,
        net.weights,
        net.bias,
        net.uppers,
        _places(net.expand),
        first=net.first,
        widest=net.widest,
        decides=int(net.decides),
        bundles=net.bundles,
    )
    return Activations(values, Recorder(codes, max(net.n_out, 1), net.upper))


def _places(expand: Any) -> Any:
    """`expand` as the handlers take it: empty where every output has its own row."""
    return jnp.zeros(0, np.int32) if expand is None else expand


def _call_single(net: Any, x: Any) -> Activations:
    facts = (net.n_in, net.n_out, net.upper, False, math.inf)
    layer = Layer(net.starts, net.indices, net.weights, net.bias, net.expand, *facts)
    unknown = Recorder(jnp.zeros((x.shape[0], 0), jnp.uint8), max(net.n_in, 1), 0.0)
    return call(Single(max(net.n_out, 1)), "cuda", Activations(x, unknown), layer)


def network_scratch(net: Any, batch: int) -> int:
    """Bytes of the GPU's workspace: two generations of folded state in tiles of 128 rows, the rows'
    lists and origins, a word of verdicts for 32 rows, counters, the plans of panels."""
    slots = 128 * -(-batch // 128)
    plans = 0
    if net.bundles > 1:
        plans = min(net.depth, PANEL_LAYERS) * -(-net.widest // (BUNDLE * PANEL)) * _PLAN
    return 512 + slots // 4 + 4 * slots * (2 * net.widest + 3) + 32 * _ALIGN + plans


def cpu_tile(width: int, batch: int) -> int:
    """Images that a CPU worker takes at a time: two generations of `width` values fit its share of
    the cache."""
    most = max(_STATE // (8 * max(width, 1)) // _BLOCK, 1) * _BLOCK
    share = -(-max(batch, 1) // _workers())
    return min(most, -(-share // _BLOCK) * _BLOCK, _TILE)


def _workers() -> int:
    """Workers that the scratch has room for; the handler takes as many as its pool has."""
    return min(os.cpu_count() or 1, 64)


def empty(net: Any, batch: int) -> Activations:
    """The result of a stack on no image, or with no output."""
    codes = jnp.zeros((batch, 1), jnp.uint8)
    return Activations(
        jnp.zeros((batch, net.n_out), jnp.float32), Recorder(codes, max(net.n_out, 1), net.upper)
    )
