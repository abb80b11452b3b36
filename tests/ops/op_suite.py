"""One suite for every op x implementation. An op joins with a subclass of `OpSuite` in
tests/ops/<op>/test_suite.py whose `spec` is an `OpSpec`; it then passes every check here.

A check that does not apply to an op is named in `OpSpec.inapplicable` with the reason; it is not
collected for that op, and `op_report.skips` lists it. tests/structure/test_suite_coverage.py fails
for a check that applies to no op, and for a public op without a subclass.
"""

import contextlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from ops.op_forward import ForwardMode
from ops.op_sharding import DEVICES, ShardingClaims
from ops.op_spec import TOLERANCE as TOLERANCE
from ops.op_spec import (
    OpSpec,
    assert_close,
    assert_tree,
    bound,
    cast,
    direction_of,
    exact,
    float_leaves,
    forward,
    gradient,
    inner,
    like_dense,
    loss_of,
    moved,
    norm,
    numeric,
    pick,
    placed,
    rounded,
    split,
    stack,
    weighed,
    weights_for,
)

import jaxsparse as js

__all__ = ["OpSpec", "OpSuite", "assert_close", "cast", "like_dense", "rounded"]

WRONG_IMPLEMENTATIONS = {
    "implementation word": ({"implementation": "tpu"}, ValueError, "'tpu' is not one of cuda, cpu"),
    "implementation number": ({"implementation": 3}, TypeError, "implementation=3; it takes None"),
    "implementation none": ({"implementation": ()}, ValueError, r"implementation=\(\) names none"),
}


def in_float32() -> Any:
    """A context in which a GPU's reference multiplies float32 as float32."""
    if jax.default_backend() == "gpu":
        return jax.default_matmul_precision("highest")
    return contextlib.nullcontext()


class OpSuite(ForwardMode, ShardingClaims):
    """Subclass it with `spec`; pytest collects the rest."""

    spec: OpSpec

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for check in cls.spec.inapplicable if "spec" in vars(cls) else ():
            if not hasattr(OpSuite, f"test_{check}"):
                known = [n.removeprefix("test_") for n in dir(OpSuite) if n.startswith("test_")]
                raise ValueError(f"{cls.spec.name}: {check!r} is not one of the checks {known}")
            setattr(cls, f"test_{check}", None)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """What differs from op to op: operands to batch, and wrong arguments."""
        if not metafunc.function.__qualname__.startswith("OpSuite."):
            return
        names = metafunc.fixturenames
        if "batched" in names:
            operands = self.spec.draw(np.random.default_rng(0), 0.5)
            moving = [name for name, value in operands.items() if jax.tree.leaves(value)]
            metafunc.parametrize("batched", [*moving, "all"] if len(moving) > 1 else moving)
        if "wrong" in names:
            metafunc.parametrize("wrong", [*self.spec.bad, *WRONG_IMPLEMENTATIONS])

    def compare(self, got: Any, operands: Any, dtype: str = "float32", scale: float = 1.0) -> None:
        """`got` is what the oracle makes of the operands, rounded to this dtype."""
        spec = self.spec
        want = spec.oracle(exact(spec, operands, dtype))
        assert_tree(got, want, dtype, scale * spec.scale)
        for value in float_leaves(got):
            assert value.dtype == (spec.result or dtype)

    def test_values(self, implementation, rng):
        """Called as a user does outside of jit."""
        operands = self.spec.draw(rng, 0.4)
        self.compare(self.spec.apply(placed(self.spec, operands), implementation), operands)

    def test_empty_mask(self, implementation, rng):
        operands = self.spec.draw(rng, 0.0)
        self.compare(forward(self.spec, implementation)(placed(self.spec, operands)), operands)

    def test_full_mask(self, implementation, rng):
        operands = self.spec.draw(rng, 1.0)
        self.compare(forward(self.spec, implementation)(placed(self.spec, operands)), operands)

    @pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
    def test_16_bits(self, implementation, rng, dtype):
        operands = self.spec.draw(rng, 0.4)
        got = forward(self.spec, implementation)(placed(self.spec, operands, dtype))
        self.compare(got, operands, dtype)

    def test_one_trace_serves_every_mask(self, implementation, rng):
        run = forward(self.spec, implementation)
        draws = [self.spec.draw(rng, fill) for fill in self.spec.fills]
        run(placed(self.spec, draws[0]))
        traces = run.traces
        for operands in draws:
            self.compare(run(placed(self.spec, operands)), operands)
        assert run.traces == traces

    def test_no_elements(self, implementation, rng):
        """A batch of nothing, forwards and backwards."""
        operands = self.spec.empty(rng)
        floats, rest = split(self.spec, placed(self.spec, operands))
        if not self.spec.differentiable:
            self.compare(forward(self.spec, implementation)(rest | floats), operands)
            return
        weights = weights_for(self.spec, operands, rng)
        (_, got), found = gradient(self.spec, implementation)(floats, rest, weights)
        self.compare(got, operands)
        assert jax.tree.map(jnp.shape, found) == jax.tree.map(jnp.shape, floats)
        assert all(np.isfinite(np.asarray(v)).all() for v in jax.tree.leaves(found))

    def test_gradient(self, implementation, rng):
        """Against the oracle's central differences, operand by operand, and entry by entry against
        the reference.
        """
        spec = self.spec
        operands = spec.draw(rng, 0.4)
        weights = weights_for(spec, operands, rng)
        floats, rest = split(spec, placed(spec, operands))
        _, got = gradient(spec, implementation)(floats, rest, weights)
        loss, at = numeric(spec, weights), exact(spec, operands, "float32")
        for name in floats:
            assert jax.tree.map(jnp.shape, got[name]) == jax.tree.map(jnp.shape, floats[name])
            way = {name: direction_of(at[name], rng)}
            want = (loss(moved(at, (1e-5, way))) - loss(moved(at, (-1e-5, way)))) / 2e-5
            limit = 2 * spec.scale * bound("float32") * max(1.0, norm(got[name]))
            assert abs(inner(got[name], way[name]) - want) <= limit, name
        if implementation != "reference":
            with in_float32():
                _, want = gradient(spec, "reference")(floats, rest, weights)
            assert_tree(got, want, "float32", 2 * spec.scale)

    def test_gradient_of_16_bits(self, implementation, rng):
        spec = self.spec
        operands = spec.draw(rng, 0.4)
        weights = weights_for(spec, operands, rng)
        floats, rest = split(spec, placed(spec, operands, "bfloat16"))
        _, got = gradient(spec, implementation)(floats, rest, weights)
        assert all(v.dtype == jnp.bfloat16 for v in jax.tree.leaves(got))
        plain, _ = split(spec, placed(spec, exact(spec, operands, "bfloat16")))
        with in_float32():
            _, want = gradient(spec, "reference")(plain, rest, weights)
        assert_tree(got, want, "bfloat16", 2 * spec.scale)

    def test_second_derivative(self, implementation, rng):
        """Of a direction, against the oracle's second differences, operand by operand."""
        spec = self.spec
        operands = spec.draw(rng, 0.4)
        weights = weights_for(spec, operands, rng)
        floats, rest = split(spec, placed(spec, operands))
        at = exact(spec, operands, "float32")
        first = {name: direction_of(at[name], rng) for name in floats}

        def slope(floats: Any, rest: Any, weights: Any, way: Any) -> jax.Array:
            found, _ = jax.grad(loss_of(spec, implementation), has_aux=True)(floats, rest, weights)
            return sum(
                (jnp.vdot(*pair) for pair in zip(*map(jax.tree.leaves, (found, way)), strict=True)),
                start=jnp.float32(0),
            )

        way = jax.tree.map(lambda v: v.astype(np.float32), first)
        with in_float32():
            got = jax.jit(jax.grad(slope))(floats, rest, weights, way)
        loss, step = numeric(spec, weights), 1e-5
        for name in floats:
            second = {name: direction_of(at[name], rng)}
            corners = [
                a * b * loss(moved(at, (a * step, first), (b * step, second)))
                for a in (1, -1)
                for b in (1, -1)
            ]
            limit = 20 * spec.scale * bound("float32") * max(1.0, norm(got[name]))
            assert abs(inner(got[name], second[name]) - sum(corners) / (4 * step**2)) <= limit, name

    def test_vmap(self, implementation, rng, batched):
        """With one operand batched, or all of them; and of the gradient. (The reference, whose
        batching rules are the kernels', only has its gradient batched over all.)
        """
        spec = self.spec
        draws = [spec.draw(rng, fill) for fill in (0.4, 0.8, 0.0)]
        moving = [n for n in draws[0] if batched in (n, "all") and jax.tree.leaves(draws[0][n])]
        each = [{**draws[0], **{name: d[name] for name in moving}} for d in draws]
        many = placed(spec, draws[0]) | {
            n: stack(*(placed(spec, d)[n] for d in draws)) for n in moving
        }
        axes = {name: 0 if name in moving else None for name in many}
        alone = implementation == "reference" and batched != "all"
        if alone or not spec.differentiable:
            got = jax.jit(jax.vmap(lambda d: spec.apply(d, implementation), in_axes=(axes,)))(many)
            for i, operands in enumerate(each):
                self.compare(pick(got, i), operands)
            return
        weights = weights_for(spec, each[0], rng)
        run = jax.value_and_grad(loss_of(spec, implementation), has_aux=True)
        by = [{k: axes[k] for k in part} for part in split(spec, many)]
        (_, got), found = jax.jit(jax.vmap(run, in_axes=(*by, None)))(*split(spec, many), weights)
        for i, operands in enumerate(each):
            self.compare(pick(got, i), operands)
            alone = gradient(spec, implementation)(*split(spec, placed(spec, operands)), weights)
            assert_tree(pick(found, i), alone[1], "float32", 2 * spec.scale)

    def test_vmap_over_nothing(self, implementation, rng):
        """A batch axis of no entries, for each operand alone and for all together."""
        spec = self.spec
        operands = placed(spec, spec.draw(rng, 0.4))
        moving = [name for name, value in operands.items() if jax.tree.leaves(value)]
        one = jax.eval_shape(lambda d: spec.apply(d, implementation), operands)
        want = jax.tree.map(lambda v: (0, *v.shape), one)
        for names in (*([name] for name in moving), moving):
            none = {
                n: jax.tree.map(lambda v: np.zeros((0, *v.shape), v.dtype), operands[n])
                for n in names
            }
            axes = ({name: 0 if name in names else None for name in operands},)
            run = jax.vmap(lambda d: spec.apply(d, implementation), in_axes=axes)
            got = jax.eval_shape(run, operands | none)
            assert jax.tree.map(lambda v: v.shape, got) == want, names
        assert jax.tree.map(jnp.shape, run(operands | none)) == want

    def test_scan_and_remat(self, implementation, rng):
        """A scan of the rematerialised op over the operands that a mesh would split."""
        spec = self.spec
        draws = [spec.draw(rng, fill) for fill in (0.3, 0.9)]
        each = [{**draws[0], **{n: d[n] for n in spec.sharded}} for d in draws]
        shared = {n: v for n, v in placed(spec, draws[0]).items() if n not in spec.sharded}
        many = stack(*({n: placed(spec, d)[n] for n in spec.sharded} for d in draws))
        if not spec.differentiable:
            step = jax.checkpoint(lambda d: spec.apply({**shared, **d}, implementation))
            got = jax.jit(lambda m: jax.lax.scan(lambda c, d: (c, step(d)), 0, m)[1])(many)
            for i, operands in enumerate(each):
                self.compare(pick(got, i), operands)
            return
        weights = weights_for(spec, each[0], rng)

        def total(floats: Any, scanned: Any, rest: Any) -> Any:
            def step(carry: jax.Array, given: Any) -> Any:
                alone = jax.checkpoint(loss_of(spec, implementation))
                loss, result = alone({**floats, **given[0]}, {**rest[0], **given[1]}, weights)
                return carry + loss, result

            return jax.lax.scan(step, jnp.float32(0), (scanned, rest[1]))

        (floats, rest), (scanned, others) = split(spec, shared), split(spec, many)
        run = jax.jit(jax.value_and_grad(total, (0, 1), has_aux=True))
        (loss, got), found = run(floats, scanned, (rest, others))
        runs = [
            gradient(spec, implementation)(*split(spec, placed(spec, d)), weights) for d in each
        ]
        assert_close(loss, sum(r[0][0] for r in runs), "float32", spec.scale)
        for i, operands in enumerate(each):
            self.compare(pick(got, i), operands)
        want = (
            {n: jax.tree.map(lambda *v: sum(v), *(r[1][n] for r in runs)) for n in floats},
            {n: stack(*(r[1][n] for r in runs)) for n in scanned},
        )
        assert_tree(found, want, "float32", 2 * spec.scale)

    @pytest.mark.skipif(len(jax.devices()) < DEVICES, reason="needs four devices")
    def test_shard_map(self, implementation, rng):
        """One draw a device, forwards and backwards, without gathering what is split."""
        spec = self.spec
        draws = [spec.draw(rng, 0.4) for _ in range(DEVICES)]
        each = [{**draws[0], **{n: d[n] for n in spec.sharded}} for d in draws]
        whole = placed(spec, draws[0])
        whole |= {
            n: jax.tree.map(lambda *v: np.concatenate(v), *(placed(spec, d)[n] for d in draws))
            for n in spec.sharded
        }
        auto = (jax.sharding.AxisType.Auto,)
        mesh = jax.make_mesh((DEVICES,), ("data",), auto, devices=jax.devices()[:DEVICES])
        by = {n: P("data") if n in spec.sharded else P() for n in whole}
        weights = weights_for(spec, each[0], rng)

        def local(operands: Any) -> Any:
            return jax.tree.map(lambda v: v[None], spec.apply(operands, implementation))

        spread = jax.shard_map(local, mesh=mesh, in_specs=(by,), out_specs=P("data"))

        def loss(floats: Any, rest: Any) -> Any:
            result = spread({**rest, **floats})
            return weighed(result, weights), result

        run = jax.value_and_grad(loss, has_aux=True) if spec.differentiable else loss
        compiled = jax.jit(run).lower(*split(spec, whole)).compile()
        assert "all-gather" not in compiled.as_text()
        found = compiled(*split(spec, whole))
        (_, got), found = found if spec.differentiable else (found, {})
        for i, operands in enumerate(each):
            self.compare(pick(got, i), operands)
        if not found:
            return
        alone = gradient(spec, implementation)
        runs = [alone(*split(spec, placed(spec, d)), weights)[1] for d in each]
        for name, value in found.items():
            join = np.concatenate if name in spec.sharded else sum
            want = jax.tree.map(lambda *v, join=join: join(v), *(r[name] for r in runs))
            assert_tree(value, want, "float32", 2 * spec.scale)

    def test_export(self, implementation, rng):
        operands = placed(self.spec, self.spec.draw(rng, 0.4))
        arrays = {n: v for n, v in operands.items() if jax.tree.leaves(v)}
        run = jax.jit(lambda arrays: self.spec.apply({**operands, **arrays}, implementation))
        blob = jax.export.export(run, disabled_checks=js.DISABLE_JAX_EXPORT_CHECKS)(arrays)
        again = jax.export.deserialize(blob.serialize()).call(arrays)
        assert_tree(again, forward(self.spec, implementation)(operands), "float32", self.spec.scale)

    def test_overflow_is_flagged_and_written_nowhere(self, implementation, rng):
        operands, want, words = self.spec.overflow(rng)
        given = placed(self.spec, operands)
        got = self.spec.apply(given, implementation)
        assert_tree(got, want, "float32", self.spec.scale)
        if words is not None:
            with pytest.raises(Exception, match=words), js.checked():
                jax.block_until_ready(self.spec.apply(given, implementation))

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_nothing_is_read_that_does_not_count(self, implementation, rng, bad):
        """NaN or Inf there reaches neither the result nor a gradient."""
        spec = self.spec
        operands = spec.draw(rng, 0.3)
        free = spec.unread(operands)
        assert any(where.any() for where in free.values())

        def filled(value: float) -> Any:
            changed = {
                n: np.where(w, operands[n].dtype.type(value), operands[n]) for n, w in free.items()
            }
            return {**operands, **changed}

        clean, wild = filled(0), filled(bad)
        if not spec.differentiable:
            got = forward(spec, implementation)(placed(spec, wild))
            self.compare(got, clean)
            return
        weights = weights_for(spec, clean, rng)
        run = gradient(spec, implementation)
        (_, got), found = run(*split(spec, placed(spec, wild)), weights)
        self.compare(got, clean)
        _, want = run(*split(spec, placed(spec, clean)), weights)
        assert_tree(found, want, "float32", spec.scale)

    def test_bitwise_repeat(self, implementation, rng):
        spec = self.spec
        operands = spec.draw(rng, 0.5)
        given = split(spec, placed(spec, operands))
        with js.config(deterministic=True):
            if not spec.differentiable:
                run = jax.jit(lambda f, r: spec.apply({**f, **r}, implementation))
            else:
                weights = weights_for(spec, operands, rng)
                step = jax.value_and_grad(loss_of(spec, implementation), has_aux=True)
                run = jax.jit(lambda f, r: step(f, r, weights))
            first = jax.tree.map(np.asarray, run(*given))
            for _ in range(4):
                jax.tree.map(np.testing.assert_array_equal, first, run(*given))

    def test_wrong_arguments(self, wrong):
        """Refused at once and under a trace, by a message that names the argument."""
        changed, error, words = {**self.spec.bad, **WRONG_IMPLEMENTATIONS}[wrong]
        for run in (
            lambda: self.spec.call(**changed),
            lambda: jax.eval_shape(lambda: self.spec.call(**changed)),
        ):
            with pytest.raises(error, match=words) as told:
                run()
            assert any(n.removesuffix("s") in str(told.value) for n in changed), "it is not named"

    def test_an_implementation_that_cannot_run_says_why(self):
        if jax.default_backend() == "gpu":
            pytest.skip("every implementation runs here")
        why = r"cuda: (JAX sees no CUDA device|this build has no|this op has no 'cuda')"
        with pytest.raises(ValueError, match=why):
            self.spec.call(implementation="cuda")
        jax.eval_shape(lambda: self.spec.call(implementation=("cuda", "reference")))
