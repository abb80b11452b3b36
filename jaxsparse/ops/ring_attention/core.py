"""The differentiable core of `ring_attention`: keys and values go around a ring of devices.

In each step a device attends with its queries to the keys that it holds, and passes them on; the
transfer does not depend on the step's result, so that XLA can run both at once. Results are merged
by their log-sum-exp. The gradient is a second ring, which uses the log-sum-exp over all keys: the
gradients of keys and values are passed on as these are, one step later.

The steps run in a loop: if they were unrolled, XLA could start all transfers at once, and a device
would hold the keys of all others.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxsparse.core.differentiable import Tangents, differentiable, tangent_of
from jaxsparse.ffi.mesh import AxisName
from jaxsparse.index.blocks.parts import lists_of_shards
from jaxsparse.ops.sparse_attention.core import AttentionParams, Mask, gradients
from jaxsparse.ops.sparse_attention.core import attend as attend_alone

Number = jax.Array | int
Pair = tuple[jax.Array, jax.Array]


@dataclasses.dataclass(frozen=True)
class Ring:
    """What is static: the mesh axis, its size, and the attention of each step."""

    axis: AxisName
    devices: int
    attention: AttentionParams

    def passed_on(self, values: Pair) -> Pair:
        """The values of the device before this one."""
        pairs = [(i, (i + 1) % self.devices) for i in range(self.devices)]
        one, other = (jax.lax.ppermute(v, self.axis, pairs) for v in values)
        return one, other


class Rows(NamedTuple):
    """What a device knows beside q, k and v.

    Attributes:
        me: int32[], its place on the axis.
        codes: int32[b, h, Q, C], the state of the blocks of its queries and all keys.
        words: uint32[slots, block_q, words], the bits of partial blocks.
        slopes: float32[N] or None.
        bias: [B or 1, N or 1, T or 1, all keys or 1] or None.
    """

    me: jax.Array
    codes: jax.Array
    words: jax.Array
    slopes: jax.Array | None
    bias: jax.Array | None


#: q, k, v, rows, out, lse.
Saved = tuple[jax.Array, jax.Array, jax.Array, Rows, jax.Array, jax.Array]
#: dq, and dk and dv of the keys that this device holds, in float32.
Sums = tuple[jax.Array, Pair]


class Step(NamedTuple):
    """The part of `Rows` for the keys of one step. `shift` float32[N, 1] is to be added to their
    scores: the kernels apply `slopes` to positions that count from the first key and query given.
    """

    mask: Mask
    bias: jax.Array | None
    shift: jax.Array | None


class _Steps:
    """The steps of one device's ring."""

    def __init__(self, ring: Ring, rows: Rows, queries: int, keys: int):
        self.ring, self.rows, self.queries, self.keys = ring, rows, queries, keys
        self.lists = lists_of_shards(rows.codes, ring.devices)

    def at(self, number: Number) -> Step:
        """The part for step `number`: the keys of the device `number` places before this one."""
        rows, devices = self.rows, np.int32(self.ring.devices)
        owner = jax.lax.rem(rows.me + devices - jnp.int32(number), devices)
        lists = [jax.lax.dynamic_index_in_dim(v, owner, keepdims=False) for v in self.lists]
        bias, shift = rows.bias, None
        if bias is not None and bias.shape[3] != 1:
            bias = jax.lax.dynamic_slice_in_dim(bias, owner * self.keys, self.keys, axis=3)
        if rows.slopes is not None:
            apart = owner * np.int32(self.keys) - rows.me * np.int32(self.queries)
            shift = (rows.slopes * apart.astype(jnp.float32))[:, None]
        return Step(Mask(*lists, words=rows.words), bias, shift)


def _around(ring: Ring, rows: Rows, q: jax.Array, k: jax.Array, v: jax.Array) -> Pair:
    """(out, lse) of a device's queries over all keys."""
    steps = _Steps(ring, rows, q.shape[1], k.shape[1])

    def found(number: Number, kv: Pair) -> Pair:
        return _one(ring, rows, steps.at(number), q, *kv)

    def turn(number: Number, carry: tuple[Pair, Pair]) -> tuple[Pair, Pair]:
        kv, before = carry
        ahead = ring.passed_on(kv)
        return ahead, _merged(before, found(number, kv))

    out, lse = found(0, (k, v))
    if ring.devices > 1:
        carry = ring.passed_on((k, v)), (out.astype(jnp.float32), lse)
        kv, before = jax.lax.fori_loop(1, ring.devices - 1, turn, carry)
        out, lse = _merged(before, found(ring.devices - 1, kv))
    return out.astype(q.dtype), lse


def _one(ring: Ring, rows: Rows, step: Step, q: jax.Array, k: jax.Array, v: jax.Array) -> Pair:
    """(out, lse) over the keys of one step."""
    out, lse = attend_alone(ring.attention, q, k, v, step.mask, rows.slopes, step.bias)
    return out, lse if step.shift is None else lse + step.shift[None]


def _merged(one: Pair, other: Pair) -> Pair:
    """Two results over different keys as one; -inf is the log-sum-exp over no keys."""
    top = jax.lax.stop_gradient(jnp.maximum(one[1], other[1]))
    top = jnp.where(jnp.isfinite(top), top, np.float32(0))
    weights = jnp.exp(one[1] - top), jnp.exp(other[1] - top)
    total = weights[0] + weights[1]
    some = total != 0
    total = jnp.where(some, total, np.float32(1))
    parts = [
        value.astype(jnp.float32) * (weight / total).swapaxes(1, 2)[..., None]
        for (value, _), weight in zip((one, other), weights, strict=True)
    ]
    return parts[0] + parts[1], jnp.where(some, top + jnp.log(total), -np.inf)


@differentiable()
def attend(ring: Ring, q: jax.Array, k: jax.Array, v: jax.Array, rows: Rows) -> Any:
    """(out[B, T, N, Hv], lse float32[B, N, T]) of this device's queries over all keys."""
    return _around(ring, rows, q, k, v)


def _attend_fwd(ring: Ring, q: jax.Array, k: jax.Array, v: jax.Array, rows: Rows):
    out, lse = attend(ring, q, k, v, rows)
    return (out, lse), (q, k, v, rows, out, lse)


def _attend_tangent(ring: Ring, saved: Saved, tangents: Tangents) -> Any:
    run = functools.partial(_around, ring, saved[3])
    return tangent_of(run, saved[:3], tangents[:3])


def _attend_bwd(ring: Ring, saved: Saved, cotangent: Pair):
    q, k, v, rows, out, lse = saved
    steps = _Steps(ring, rows, q.shape[1], k.shape[1])
    # The ring starts anew: else XLA may keep what the first transfer of the other one brought.
    k, v, cotangent = jax.lax.optimization_barrier((k, v, cotangent))

    def found(number: Number, kv: Pair) -> Sums:
        step = steps.at(number)
        own = lse if step.shift is None else lse - step.shift[None]
        given = (*cotangent, step.mask, rows.slopes, step.bias)
        grads = gradients(ring.attention, q, *kv, out, own, *given)
        dq, dk, dv = (x.astype(jnp.float32) for x in grads)
        return dq, (dk, dv)

    def added(number: Number, kv: Pair, before: Sums) -> Sums:
        """The sums with this step's; those of its keys come from the device that held them."""
        dk, dv = ring.passed_on(before[1])
        dq, own = found(number, kv)
        return before[0] + dq, (dk + own[0], dv + own[1])

    def turn(number: Number, carry: tuple[Pair, Sums]) -> tuple[Pair, Sums]:
        kv, before = carry
        ahead = ring.passed_on(kv)
        return ahead, added(number, kv, before)

    dq, (dk, dv) = found(0, (k, v))
    if ring.devices > 1:
        carry = ring.passed_on((k, v)), (dq, (dk, dv))
        kv, before = jax.lax.fori_loop(1, ring.devices - 1, turn, carry)
        dq, away = added(ring.devices - 1, kv, before)
        dk, dv = ring.passed_on(away)
    return dq.astype(q.dtype), dk.astype(k.dtype), dv.astype(v.dtype), None


attend.defrules(_attend_fwd, _attend_tangent, _attend_bwd)
