"""The op suite's checks of forward mode: `OpSuite` inherits them."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from ops.op_spec import (
    OpSpec,
    assert_tree,
    bound,
    direction_of,
    exact,
    float_leaves,
    loss_of,
    moved,
    norm,
    numeric,
    placed,
    split,
    weights_for,
)

UNREAD = "nothing_is_read_that_does_not_count"
#: Of `check_grads`, for differences of float32 results across the kinks of an activation.
STEP, LOOSE = 1e-4, 5e-2


class Plane:
    """An op's weighed sum at its operands moved along two directions.

    Attributes:
        at: the operands in float64.
        ways: the directions.
        loss: the sum by the oracle, of operands.
        along: float32[2], how far along each direction -> the sum, jitted.
        derivatives: float32[2] -> its gradient by forward mode, and its second derivatives,
            float32[2, 2], by the order of the modes.
    """

    def __init__(self, spec: OpSpec, implementation: str):
        rng = np.random.default_rng(0)
        operands = spec.draw(rng, 0.4)
        weights = weights_for(spec, operands, rng)
        floats, rest = split(spec, placed(spec, operands))
        self.at = exact(spec, operands, "float32")
        self.ways = [{name: direction_of(self.at[name], rng) for name in floats} for _ in range(2)]
        self.loss = numeric(spec, weights)
        first, second = map(as_float32, self.ways)
        loss = loss_of(spec, implementation)

        def along(s: jax.Array) -> jax.Array:
            there = jax.tree.map(lambda v, a, b: v + s[0] * a + s[1] * b, floats, first, second)
            return loss(there, rest, weights)[0]

        orders = {
            "jacfwd(jacfwd)": jax.jacfwd(jax.jacfwd(along)),
            "jacfwd(jacrev)": jax.hessian(along),
            "jacrev(jacfwd)": jax.jacrev(jax.jacfwd(along)),
            "jacrev(jacrev)": jax.jacrev(jax.jacrev(along)),
        }
        self.along = jax.jit(along)
        self.derivatives = jax.jit(
            lambda s: (jax.jacfwd(along)(s), {name: order(s) for name, order in orders.items()})
        )


def floats_of(spec: OpSpec, implementation: str, rest: Any) -> Any:
    """floats -> the float leaves of the result."""
    return lambda floats: float_leaves(spec.apply({**rest, **floats}, implementation))


@functools.cache
def tangent(spec: OpSpec, implementation: str) -> Any:
    """(floats, tangents, rest) -> the tangents of the float results, compiled once."""
    return jax.jit(lambda f, t, r: jax.jvp(floats_of(spec, implementation, r), (f,), (t,))[1])


@functools.cache
def plane_of(spec: OpSpec, implementation: str) -> Plane:
    return Plane(spec, implementation)


class ForwardMode:
    """Checks of tangents; an op without a gradient has none of them."""

    spec: OpSpec

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        spec = vars(cls).get("spec")
        if spec is None:
            return
        for check in [name for name in vars(ForwardMode) if name.startswith("test_")]:
            unread = check == "test_tangents_of_what_is_not_read_do_not_count"
            if not spec.differentiable or (unread and UNREAD in spec.inapplicable):
                setattr(cls, check, None)

    def test_jvp(self, implementation, rng):
        """Against the oracle's central differences; operand by operand it adds up to the same."""
        spec = self.spec
        operands = spec.draw(rng, 0.4)
        floats, rest = split(spec, placed(spec, operands))
        at = exact(spec, operands, "float32")
        way = {name: direction_of(at[name], rng) for name in floats}
        run, tangents = floats_of(spec, implementation, rest), as_float32(way)
        got = tangent(spec, implementation)(floats, tangents, rest)
        step = 1e-6
        ends = [float_leaves(spec.oracle(moved(at, (sign * step, way)))) for sign in (1, -1)]
        want = [(high - low) / (2 * step) for high, low in zip(*ends, strict=True)]
        assert_tree(got, want, "float32", 10 * spec.scale)

        def alone(name: str) -> Any:
            one = lambda value: run({**floats, name: value})  # noqa: E731
            return jax.jvp(one, (floats[name],), (tangents[name],))[1]

        each = jax.jit(lambda: [alone(name) for name in floats])()
        assert_tree([sum(v) for v in zip(*each, strict=True)], want, "float32", 10 * spec.scale)

    def test_linearize(self, implementation, rng):
        """What it gives, several tangents at once, is the jvp's, and transposes to the vjp's."""
        spec = self.spec
        operands = spec.draw(rng, 0.4)
        floats, rest = split(spec, placed(spec, operands))
        ways = [as_float32(direction_of(floats, rng)) for _ in range(3)]
        run = floats_of(spec, implementation, rest)

        def both(floats: Any, ways: Any, cotangent: Any) -> Any:
            _, linear = jax.linearize(run, floats)
            many = jax.tree.map(lambda *v: jnp.stack(v), *ways)
            back = jax.linear_transpose(linear, floats)(cotangent)[0]
            return jax.vmap(linear)(many), back

        results = jax.eval_shape(run, floats)
        cotangent = [rng.standard_normal(v.shape).astype(np.float32) for v in results]
        got, back = jax.jit(both)(floats, ways, cotangent)
        for i, way in enumerate(ways):
            want = tangent(spec, implementation)(floats, way, rest)
            assert_tree([v[i] for v in got], want, "float32", 2 * spec.scale)
        want = jax.jit(lambda f, c: jax.vjp(run, f)[1](c)[0])(floats, cotangent)
        assert_tree(back, want, "float32", 2 * spec.scale)

    def test_jacfwd_and_hessian(self, implementation, rng):
        """Of two directions, in each order of the modes, against the oracle's differences."""
        spec = self.spec
        plane = plane_of(spec, implementation)
        slope, found = plane.derivatives(np.zeros(2, np.float32))
        step = 1e-5
        size = 20 * spec.scale * bound("float32")
        limit = size * max(1.0, norm([np.asarray(v) for v in found.values()]) * 10)
        for i, first in enumerate(plane.ways):
            ends = [plane.loss(moved(plane.at, (sign * step, first))) for sign in (1, -1)]
            close = size * max(1.0, norm(slope))
            assert abs(slope[i] - (ends[0] - ends[1]) / (2 * step)) <= close
            for j, second in enumerate(plane.ways):
                corners = [
                    a * b * plane.loss(moved(plane.at, (a * step, first), (b * step, second)))
                    for a in (1, -1)
                    for b in (1, -1)
                ]
                for name, value in found.items():
                    assert abs(value[i, j] - sum(corners) / (4 * step**2)) <= limit, (name, i, j)

    def test_check_grads_in_both_modes(self, implementation):
        """The first order by jax's own `check_grads`; the second by the same rule, difference of
        slopes against each order of the modes, from what `test_jacfwd_and_hessian` compiled.
        """
        if implementation == "cuda":
            pytest.skip("differences of float32 results need products in float32, not TF32")
        plane = plane_of(self.spec, implementation)
        s = np.zeros(2, np.float32)
        _, found = plane.derivatives(s)
        size = max(1.0, *(np.abs(value).max() for value in found.values()))
        limits = {"rtol": LOOSE, "atol": LOOSE * size}
        check_grads(plane.along, (s,), order=1, modes=["fwd", "rev"], eps=STEP, **limits)
        for j, way in enumerate(STEP * np.eye(2, dtype=np.float32)):
            ends = [np.asarray(plane.derivatives(s + end)[0]) for end in (way, -way)]
            for name, value in found.items():
                slopes = (ends[0] - ends[1]) / (2 * STEP)
                np.testing.assert_allclose(value[:, j], slopes, **limits, err_msg=name)

    @pytest.mark.parametrize("bad", [np.nan])
    def test_tangents_of_what_is_not_read_do_not_count(self, implementation, rng, bad):
        """NaN there, in the operands and in their tangents, reaches no tangent of the result."""
        spec = self.spec
        operands = spec.draw(rng, 0.3)
        free = spec.unread(operands)
        _, rest = split(spec, placed(spec, operands))

        def filled(arrays: Any, value: float) -> Any:
            changed = {
                n: np.where(w, arrays[n].dtype.type(value), arrays[n])
                for n, w in free.items()
                if n in spec.floats
            }
            return split(spec, placed(spec, {**operands, **arrays, **changed}))[0]

        way = as_float32(direction_of({n: operands[n] for n in spec.floats}, rng))
        run = tangent(spec, implementation)
        got = run(filled(operands, bad), filled(way, bad), rest)
        want = run(filled(operands, 0), filled(way, 0), rest)
        assert_tree(got, want, "float32", spec.scale)


def as_float32(tree: Any) -> Any:
    """The leaves as float32."""
    return jax.tree.map(lambda v: np.asarray(v, np.float32), tree)
