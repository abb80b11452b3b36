"""The op suite's checks of forward mode: `OpSuite` inherits them."""

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
        run, tangents = self.floats_of(rest, implementation), as_float32(way)
        got = jax.jit(lambda f, t: jax.jvp(run, (f,), (t,))[1])(floats, tangents)
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
        run = self.floats_of(rest, implementation)

        def both(floats: Any, ways: Any, cotangent: Any) -> Any:
            _, linear = jax.linearize(run, floats)
            many = jax.tree.map(lambda *v: jnp.stack(v), *ways)
            back = jax.linear_transpose(linear, floats)(cotangent)[0]
            return jax.vmap(linear)(many), back

        results = jax.eval_shape(run, floats)
        cotangent = [rng.standard_normal(v.shape).astype(np.float32) for v in results]
        got, back = jax.jit(both)(floats, ways, cotangent)
        tangent = jax.jit(lambda f, t: jax.jvp(run, (f,), (t,))[1])
        for i, way in enumerate(ways):
            want = tangent(floats, way)
            assert_tree([v[i] for v in got], want, "float32", 2 * spec.scale)
        want = jax.jit(lambda f, c: jax.vjp(run, f)[1](c)[0])(floats, cotangent)
        assert_tree(back, want, "float32", 2 * spec.scale)

    def test_jacfwd_and_hessian(self, implementation, rng):
        """Of two directions, in each order of the modes, against the oracle's differences."""
        spec = self.spec
        operands = spec.draw(rng, 0.4)
        along, at, ways, loss = self.plane(operands, implementation, rng)
        s = jnp.zeros(2, jnp.float32)
        orders = {
            "jacfwd(jacfwd)": jax.jacfwd(jax.jacfwd(along)),
            "jacfwd(jacrev)": jax.hessian(along),
            "jacrev(jacfwd)": jax.jacrev(jax.jacfwd(along)),
            "jacrev(jacrev)": jax.jacrev(jax.jacrev(along)),
        }
        slope, found = jax.jit(lambda s: (jax.jacfwd(along)(s), [f(s) for f in orders.values()]))(s)
        step = 1e-5
        size = 20 * spec.scale * bound("float32")
        limit = size * max(1.0, norm([np.asarray(v) for v in found]) * 10)
        for i, first in enumerate(ways):
            ends = [loss(moved(at, (sign * step, first))) for sign in (1, -1)]
            close = size * max(1.0, norm(slope))
            assert abs(slope[i] - (ends[0] - ends[1]) / (2 * step)) <= close
            for j, second in enumerate(ways):
                corners = [
                    a * b * loss(moved(at, (a * step, first), (b * step, second)))
                    for a in (1, -1)
                    for b in (1, -1)
                ]
                for name, value in zip(orders, found, strict=True):
                    assert abs(value[i, j] - sum(corners) / (4 * step**2)) <= limit, (name, i, j)

    def test_check_grads_in_both_modes(self, implementation, rng):
        if implementation == "cuda":
            pytest.skip("differences of float32 results need products in float32, not TF32")
        operands = self.spec.draw(rng, 0.4)
        along, *_ = self.plane(operands, implementation, rng)
        s = jnp.zeros(2, jnp.float32)
        size = float(jnp.abs(jax.jit(jax.hessian(along))(s)).max())
        limits = {"rtol": LOOSE, "atol": LOOSE * max(1.0, size), "eps": STEP}
        check_grads(jax.jit(along), (s,), order=2, modes=["fwd", "rev"], **limits)

    @pytest.mark.parametrize("bad", [np.nan])
    def test_tangents_of_what_is_not_read_do_not_count(self, implementation, rng, bad):
        """NaN there, in the operands and in their tangents, reaches no tangent of the result."""
        spec = self.spec
        operands = spec.draw(rng, 0.3)
        free = spec.unread(operands)
        _, rest = split(spec, placed(spec, operands))
        run = self.floats_of(rest, implementation)

        def filled(arrays: Any, value: float) -> Any:
            changed = {
                n: np.where(w, arrays[n].dtype.type(value), arrays[n])
                for n, w in free.items()
                if n in spec.floats
            }
            return split(spec, placed(spec, {**operands, **arrays, **changed}))[0]

        way = as_float32(direction_of({n: operands[n] for n in spec.floats}, rng))
        tangent = jax.jit(lambda f, t: jax.jvp(run, (f,), (t,))[1])
        got = tangent(filled(operands, bad), filled(way, bad))
        want = tangent(filled(operands, 0), filled(way, 0))
        assert_tree(got, want, "float32", spec.scale)

    def floats_of(self, rest: Any, implementation: str) -> Any:
        """floats -> the float leaves of the result."""
        return lambda floats: float_leaves(self.spec.apply({**rest, **floats}, implementation))

    def plane(self, operands: Any, implementation: str, rng: np.random.Generator) -> Any:
        """float32[2] -> the weighed sum at the operands moved along two directions; the operands in
        float64, the directions, and the sum by the oracle.
        """
        spec = self.spec
        weights = weights_for(spec, operands, rng)
        floats, rest = split(spec, placed(spec, operands))
        at = exact(spec, operands, "float32")
        ways = [{name: direction_of(at[name], rng) for name in floats} for _ in range(2)]
        first, second = map(as_float32, ways)
        loss = loss_of(spec, implementation)

        def along(s: jax.Array) -> jax.Array:
            there = jax.tree.map(lambda v, a, b: v + s[0] * a + s[1] * b, floats, first, second)
            return loss(there, rest, weights)[0]

        return along, at, ways, numeric(spec, weights)


def as_float32(tree: Any) -> Any:
    """The leaves as float32."""
    return jax.tree.map(lambda v: np.asarray(v, np.float32), tree)
