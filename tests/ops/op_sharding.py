"""What the op suite claims of an op on a mesh, under plain jit: it is split without a gather, and
its results and gradients are sharded as its operands are.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from ops.op_spec import OpSpec, assert_tree, exact, loss_of, placed, split, weights_for

DEVICES = 4
GATHERS = ("all-gather", "all-to-all", "collective-permute")


@dataclasses.dataclass(frozen=True)
class Split:
    """How a mesh splits an op.

    Attributes:
        operands: operand -> its axis that is split; four draws are joined along it.
        results: of each leaf of the result, the axis that is split, or None.
        same: what of a result is the same however it was made.
        gradients: whether these are split without a gather, too.
        apply: in place of the spec's, where that does more than the op.
    """

    operands: Mapping[str, int]
    results: tuple[int | None, ...] = (0,)
    same: Callable[[Any], Any] = lambda result: result
    gradients: bool = True
    apply: Callable[[Any, Any], Any] | None = None


def at(axis: int | None) -> P:
    """The spec of an array whose `axis` is split."""
    return P() if axis is None else P(*[None] * axis, "data")


class ShardingClaims:
    """The part of `OpSuite` that is about meshes."""

    spec: OpSpec

    @pytest.mark.skipif(len(jax.devices()) < DEVICES, reason="needs four devices")
    @pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=["auto", "explicit"])
    def test_split_by_a_mesh(self, implementation, rng, kind):
        spec, by = self.spec, self.spec.split
        draws = [spec.draw(rng, 0.4) for _ in range(DEVICES)]
        whole = {
            name: joined([d[name] for d in draws], by.operands[name])
            if name in by.operands
            else value
            for name, value in draws[0].items()
        }
        mesh = jax.make_mesh((DEVICES,), ("data",), (kind,), devices=jax.devices()[:DEVICES])

        def put(value: Any, axis: int | None) -> Any:
            return jax.tree.map(lambda v: jax.device_put(v, NamedSharding(mesh, at(axis))), value)

        plain = placed(spec, whole)
        given = {name: put(value, by.operands.get(name)) for name, value in plain.items()}
        weights, wanted = [], spec.oracle(exact(spec, whole, "float32"))
        if spec.differentiable:
            leaves = zip(by.results, jax.tree.leaves(wanted), strict=True)
            axes = [axis for axis, value in leaves if is_float(value)]
            weights = [put(w, a) for w, a in zip(weights_for(spec, whole, rng), axes, strict=True)]

        def forward(floats: Any, rest: Any, weights: Any) -> Any:
            return (by.apply or spec.apply)({**rest, **floats}, implementation)

        compiled = jax.jit(forward).lower(*split(spec, given), weights).compile()
        assert_split(compiled, GATHERS)
        got = compiled(*split(spec, given), weights)
        for value, axis in zip(jax.tree.leaves(got), by.results, strict=True):
            assert_sharded(value, mesh, axis)
        numpy = jax.tree.map(np.asarray, got)
        assert_tree(by.same(numpy), by.same(wanted), "float32", spec.scale)
        if not (spec.differentiable and by.gradients):
            return
        run = jax.grad(loss_of(spec, implementation), has_aux=True)
        compiled = jax.jit(lambda *a: run(*a)[0]).lower(*split(spec, given), weights).compile()
        assert_split(compiled, GATHERS)
        found = compiled(*split(spec, given), weights)
        for name, value in found.items():
            for leaf in jax.tree.leaves(value):
                assert_sharded(leaf, mesh, by.operands.get(name))
        alone = [np.asarray(w) for w in weights]
        want = jax.jit(lambda *a: run(*a)[0])(*split(spec, plain), alone)
        assert_tree(found, want, "float32", 2 * spec.scale)


def joined(values: Any, axis: int) -> Any:
    """The draws of one operand, one after the other along `axis`."""
    return jax.tree.map(lambda *v: np.concatenate(v, axis), *values)


def is_float(value: Any) -> bool:
    """Whether a leaf of a result takes part in the loss."""
    return jnp.issubdtype(value.dtype, jnp.floating)


def assert_split(compiled: Any, gathers: tuple[str, ...]) -> None:
    """No operand is gathered, and none moves."""
    text = compiled.as_text()
    assert not [name for name in gathers if name in text]


def assert_sharded(value: Any, mesh: Any, axis: int | None) -> None:
    """`value` is split along `axis`, or every device has all of it."""
    wanted = NamedSharding(mesh, at(axis))
    assert value.sharding.is_equivalent_to(wanted, value.ndim), value.sharding
