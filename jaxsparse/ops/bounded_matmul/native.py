"""`bounded_matmul` and whole networks on their native handlers: operands, attributes,
workspaces."""

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxsparse.bounded.activations import Activations
from jaxsparse.bounded.bundles import BUNDLE, PANEL, PANEL_LAYERS
from jaxsparse.bounded.layer import Layer
from jaxsparse.core.contract import Dataflow
from jaxsparse.ffi import absent, ffi_call
from jaxsparse.ffi.register import native
from jaxsparse.recorder import Recorder
from jaxsparse.recorder.types import segment_count
from jaxsparse.select.bounded import BUNDLED, COLUMN, ROW, SLAB

_DATAFLOWS = {ROW: Dataflow.ROW, SLAB: Dataflow.SLAB, COLUMN: Dataflow.COLUMN}
_ALIGN = 64
_PLAN = 2256  # bytes of a panel's plan


@dataclasses.dataclass(frozen=True)
class Single:
    """What `call` asks of its parameters: one code a row, the default dataflow."""

    segment: int
    dataflow: str | None = None
    record: bool = True


def call(p: Any, platform: str, way: str, acts: Activations, layer: Layer) -> Activations:
    """One layer, in one of its ways: operands as in docs/contract.md."""
    batch, n_out = acts.values.shape[0], layer.n_out
    segments = segment_count(n_out, p.segment)
    scratch, codes = 0, acts.recorder.codes
    if platform == "cpu":
        if layer.n_in and codes.shape[1] == 0:
            codes = jnp.zeros((batch, segment_count(layer.n_in, acts.recorder.segment)), np.uint8)
        ask = native(platform).bounded_matmul_workspace
        scratch = ask(batch, layer.n_in, layer.distinct)
    elif way == COLUMN:
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
        absent(layer.expand, np.int32),
        segment_in=acts.recorder.segment,
        upper_in=float(acts.recorder.upper),
        segment=p.segment,
        upper=float(layer.upper),
        record=int(p.record),
        zero_stays=int(layer.zero_stays),
        keeps_upper=int(layer.keeps_upper(acts.recorder.upper)),
        dataflow=int(_DATAFLOWS.get(way, Dataflow.AUTOMATIC)),
    )
    return Activations(values, Recorder(found, p.segment, layer.upper))


def call_network(net: Any, platform: str, way: str, x: Any) -> Activations:
    """A whole stack in one call, in one of its ways."""
    batch, bundles = x.shape[0], BUNDLED.index(way) if way in BUNDLED else net.bundles
    if platform == "cpu":
        scratch = native(platform).bounded_network_workspace(batch, net.n_in, net.widest)
    else:
        scratch = network_scratch(net, batch, bundles)
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
        absent(net.expand, np.int32),
        first=net.first,
        widest=net.widest,
        decides=int(net.decides),
        bundles=bundles,
    )
    return Activations(values, Recorder(codes, max(net.n_out, 1), net.upper))


def single(net: Any, x: Any) -> tuple[Single, str, Activations, Layer]:
    """The arguments of a call of a stack's only layer on a GPU."""
    facts = (net.n_in, net.n_out, net.upper, False, math.inf)
    layer = Layer(net.starts, net.indices, net.weights, net.bias, net.expand, *facts)
    unknown = Recorder(jnp.zeros((x.shape[0], 0), jnp.uint8), max(net.n_in, 1), 0.0)
    return Single(max(net.n_out, 1)), "cuda", Activations(x, unknown), layer


def network_scratch(net: Any, batch: int, bundles: int) -> int:
    """Bytes of the GPU's workspace: two generations of folded state in tiles of 128 rows, the rows'
    lists and origins, a word of verdicts for 32 rows, counters, the plans of panels."""
    slots = 128 * -(-batch // 128)
    plans = 0
    if bundles > 1:
        plans = min(net.depth, PANEL_LAYERS) * -(-net.widest // (BUNDLE * PANEL)) * _PLAN
    return 512 + slots // 4 + 4 * slots * (2 * net.widest + 3) + 32 * _ALIGN + plans


def empty(net: Any, batch: int) -> Activations:
    """The result of a stack on no image, or with no output."""
    codes = jnp.zeros((batch, 1), jnp.uint8)
    return Activations(
        jnp.zeros((batch, net.n_out), jnp.float32), Recorder(codes, max(net.n_out, 1), net.upper)
    )
