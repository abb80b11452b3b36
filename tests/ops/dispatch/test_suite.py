"""dispatch and combine in the op suite: tokens go to their experts on two devices, and back. With
grouped products, on more devices, and by both ways of exchanging rows: test_dispatch.py.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from ops.op_suite import OpSpec, OpSuite

import jaxsparse as js

DEVICES, TOKENS, TOP_K, EXPERTS, WIDTH, ROOM = 2, 5, 2, 6, 3, 7
NAMES = ("x", "ids", "weights", "experts")
pytestmark = pytest.mark.skipif(jax.device_count() < DEVICES, reason="needs two devices")


@pytest.fixture(scope="module")
def implementation():
    """This machine's: XLA moves the rows; the order is that of route, whose suite runs all."""
    return {"gpu": "cuda"}.get(jax.default_backend(), "cpu")


def draw(rng, fill):
    """Tokens of both devices; a share `fill` of their experts exists. An expert is a factor of each
    feature.
    """
    n = DEVICES * TOKENS
    ids = rng.integers(0, EXPERTS, (n, TOP_K)).astype(np.int32)
    return {
        "x": rng.standard_normal((n, WIDTH), np.float32),
        "ids": np.where(rng.random(ids.shape) < fill, ids, -1).astype(np.int32),
        "weights": rng.standard_normal((n, TOP_K), np.float32),
        "experts": rng.standard_normal((EXPERTS, WIDTH), np.float32),
    }


def split(local, results):
    devices = jax.devices()[:DEVICES]
    mesh = jax.make_mesh((DEVICES,), ("e",), (AxisType.Auto,), devices=devices)
    return jax.shard_map(local, mesh=mesh, in_specs=P("e"), out_specs=results)


def apply(operands, implementation):
    def local(x, ids, weights, experts):
        routing = js.route(ids, EXPERTS, implementation=implementation)
        rows, sent = js.dispatch(x, routing, "e", capacity=ROOM)
        own = jnp.repeat(experts, sent.group_sizes, axis=0, total_repeat_length=len(rows))
        return js.combine(rows * own, sent, weights), sent.group_sizes, sent.overflow

    # Outside of jit each part would be compiled by itself.
    run = jax.jit(split(local, (P("e"), P("e"), P())))
    return run(*(operands[name] for name in NAMES))


def sent(ids):
    """Which assignments there is room for: of each device the first ROOM to each, by expert."""
    there, over = np.zeros(ids.size, bool), False
    each, share = max(ids.size // DEVICES, 1), EXPERTS // DEVICES
    for first in range(0, ids.size, each):
        flat = ids.reshape(-1)[first : first + each]
        for device in range(DEVICES):
            mine = np.flatnonzero((flat >= 0) & (flat // share == device))
            mine = mine[np.argsort(flat[mine], kind="stable")]
            there[first + mine[:ROOM]] = True
            over |= len(mine) > ROOM
    return there.reshape(ids.shape), np.bool_(over)


def want(operands):
    x, ids, weights, experts = (operands[name] for name in NAMES)
    there, over = sent(ids)
    each = x[:, None] * experts[ids] * (weights * there)[..., None]
    sizes = np.bincount(ids[there], minlength=EXPERTS)
    return each.sum(1), sizes.astype(np.int32), over


def overflow(rng):
    """All tokens want experts of the first device."""
    operands = draw(rng, 1.0)
    operands["ids"] %= EXPERTS // DEVICES
    return operands, want(operands), f"more assignments for another than capacity={ROOM}"


def empty(rng):
    operands = draw(rng, 0.5)
    return {name: v if name == "experts" else v[:0] for name, v in operands.items()}


def unread(operands):
    none = (operands["ids"] < 0).all(1)
    return {"x": np.broadcast_to(none[:, None], operands["x"].shape)}


X, IDS = np.ones((4, WIDTH), np.float32), np.zeros((4, TOP_K), np.int32)


def call(implementation=None, experts=EXPERTS, **changed):
    def local(x, ids):
        routing = js.route(ids, experts, implementation=implementation)
        rows, sent = js.dispatch(**{"x": x, "routing": routing, "axis_name": "e", **changed})
        return js.combine(rows, sent)

    return split(local, P("e"))(X, IDS)


LINEAR = "it is linear in each operand; second_derivative has those of two together"
INSIDE = "it is called in a shard_map, as `apply` does it"


class TestDispatch(OpSuite):
    spec = OpSpec(
        name="dispatch",
        serves=(js.dispatch, js.combine),
        draw=draw,
        apply=apply,
        oracle=want,
        floats=("x", "weights", "experts"),
        sharded=frozenset({"x", "ids", "weights"}),
        empty=empty,
        unread=unread,
        overflow=overflow,
        call=call,
        bad={
            "x rank": ({"x": X[0]}, ValueError, "x has shape .* it needs 2 axes"),
            "x tokens": ({"x": X[:3]}, ValueError, "routing has 4 assignments; x has 3 tokens"),
            "routing": ({"routing": IDS}, TypeError, "routing must be the Routing of js.route"),
            "experts": ({"experts": 7}, ValueError, "7 experts, which 2 devices"),
            "capacity": ({"capacity": -1}, ValueError, "capacity=-1; it takes 0"),
            "axis number": ({"axis_name": 3}, TypeError, "axis_name=3; it takes a mesh axis"),
            "no such axis": ({"axis_name": "f"}, ValueError, "axis_name='f' is not an axis of a"),
        },
        inapplicable={
            "shard_map": INSIDE,
            "split_by_a_mesh": INSIDE,
            "jacfwd_and_hessian": LINEAR,
            "check_grads_in_both_modes": LINEAR,
            "export": "what is exported for two devices is called on two",
        },
    )

    def test_overflow_is_flagged_and_written_nowhere(self, implementation, rng):
        super().test_overflow_is_flagged_and_written_nowhere(implementation, rng)
        with js.checked():  # and nothing is left of the error, on any device
            jax.block_until_ready(apply(draw(rng, 0.0), implementation))
