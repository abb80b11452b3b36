"""One suite for every op x implementation. An op joins by describing itself as an `OpSpec`; it then
passes what is here.

`apply(diff, mask, implementation)` runs the op on its differentiable arrays (name -> array) under a
mask; `oracle` is float64 numpy. Leading axes of `diff["x"]` and of the mask are images: vmap and
shard_map split them.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import jaxsparse as js

TOLERANCE = {"float32": 2e-5, "bfloat16": 2e-2, "float16": 3e-3}
TF32 = 2e-3
Arrays = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class OpSpec:
    """What the suite needs to know of an op."""

    name: str
    inputs: Callable[[np.random.Generator, float], tuple[dict[str, np.ndarray], np.ndarray]]
    apply: Callable[..., jax.Array]
    oracle: Callable[[Arrays, np.ndarray], np.ndarray]
    dense: Callable[[Arrays, jax.Array], jax.Array]
    images: frozenset[str] = frozenset({"x", "base"})
    tiles: tuple[tuple[int, int], ...] = ((1, 1), (2, 4), (3, 5), (8, 16))


def assert_close(got: Any, want: Any, dtype: str, scale: float = 1.0) -> None:
    """Largest error over the largest value; nothing may be NaN."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape
    assert np.isfinite(got).all()
    bound = TF32 if dtype == "float32" and jax.default_backend() == "gpu" else TOLERANCE[dtype]
    limit = scale * bound * max(1.0, np.abs(want).max(initial=0.0))
    assert np.abs(got - want).max(initial=0.0) <= limit


def like_dense(x: jax.Array, kernel: jax.Array, options: Mapping[str, Any]) -> Any:
    """Shape and dtype of the dense convolution with these options of `masked_conv`."""
    return jax.eval_shape(
        lambda x, k: jax.lax.conv_general_dilated(
            x,
            k,
            options.get("strides", (1, 1)),
            options.get("padding", "SAME"),
            rhs_dilation=options.get("dilation", (1, 1)),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        ),
        x,
        kernel,
    )


def cast(diff: Arrays, dtype: str) -> dict[str, jax.Array]:
    return {k: jnp.asarray(v).astype(dtype) for k, v in diff.items()}


def rounded(diff: Arrays, dtype: str) -> dict[str, np.ndarray]:
    return {k: np.asarray(v).astype(np.float64) for k, v in cast(diff, dtype).items()}


class OpSuite:
    """Subclass it in tests/ops/test_<op>.py with `spec`; pytest collects the rest."""

    spec: OpSpec

    def run(self, diff, mask, implementation, **options):
        return self.spec.apply(diff, mask, implementation=implementation, **options)

    @pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
    @pytest.mark.parametrize("density", [0.0, 0.3, 1.0])
    def test_values(self, implementation, rng, dtype, density):
        diff, mask = self.spec.inputs(rng, density)
        got = self.run(cast(diff, dtype), jnp.asarray(mask), implementation)
        assert got.dtype == dtype
        assert_close(got, self.spec.oracle(rounded(diff, dtype), mask), dtype)

    def test_tiles(self, implementation, rng):
        diff, mask = self.spec.inputs(rng, 0.3)
        want = self.spec.oracle(diff, mask)
        for tile in self.spec.tiles:
            for align in ("grid", "component"):
                index = js.tile_index(jnp.asarray(mask), tile, align=align)
                assert_close(
                    self.run(cast(diff, "float32"), index, implementation), want, "float32"
                )

    @pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
    def test_grad(self, implementation, rng, dtype):
        diff, mask = self.spec.inputs(rng, 0.4)
        mask = jnp.asarray(mask)
        weight = rng.standard_normal(self.spec.oracle(diff, mask).shape).astype(np.float32)

        def loss(function, d):
            return jnp.sum(function(d).astype(jnp.float32) * weight)

        got = jax.grad(lambda d: loss(lambda d: self.run(d, mask, implementation), d))(
            cast(diff, dtype)
        )
        exact = cast(rounded(diff, dtype), "float32")
        with jax.default_matmul_precision("highest"):
            want = jax.grad(lambda d: loss(lambda d: self.spec.dense(d, mask), d))(exact)
        for name in diff:
            assert_close(got[name], want[name], dtype, scale=2.0)

    def test_second_derivative(self, implementation, rng):
        diff, mask = self.spec.inputs(rng, 0.4)
        diff, mask = cast(diff, "float32"), jnp.asarray(mask)

        def norm(function, d):
            gradient = jax.grad(lambda d: jnp.sum(jnp.sin(function(d))))(d)
            return sum(jnp.sum(g**2) for g in gradient.values()) * 1e-2

        with jax.default_matmul_precision("highest"):
            got = jax.grad(lambda d: norm(lambda d: self.run(d, mask, implementation), d))(diff)
            want = jax.grad(lambda d: norm(lambda d: self.spec.dense(d, mask), d))(diff)
        for name in diff:
            assert_close(got[name], want[name], "float32", scale=20.0)

    def test_jit_serves_every_mask(self, implementation, rng):
        diff, mask = self.spec.inputs(rng, 0.3)
        traces = []

        @jax.jit
        def f(d, m):
            traces.append(1)
            return self.run(d, m, implementation)

        for density in (0.3, 0.0, 1.0, 0.6):
            _, mask = self.spec.inputs(rng, density)
            assert_close(
                f(cast(diff, "float32"), jnp.asarray(mask)), self.spec.oracle(diff, mask), "float32"
            )
        assert len(traces) == 1

    @pytest.mark.parametrize("batched", ["all", "mask", "arrays", "kernel"])
    def test_vmap(self, implementation, rng, batched):
        pairs = [self.spec.inputs(rng, d) for d in (0.2, 0.7, 0.0)]
        diffs = [cast(d, "float32") for d, _ in pairs]
        moving = {
            "all": set(diffs[0]),
            "mask": set(),
            "arrays": set(self.spec.images) & set(diffs[0]),
            "kernel": set(diffs[0]) - self.spec.images,
        }[batched]
        many_masks = batched in ("all", "mask")
        axes = ({k: 0 if k in moving else None for k in diffs[0]}, 0 if many_masks else None)
        stacked = {
            k: jnp.stack([d[k] for d in diffs]) if k in moving else diffs[0][k] for k in diffs[0]
        }
        masks = (
            jnp.stack([jnp.asarray(m) for _, m in pairs])
            if many_masks
            else jnp.asarray(pairs[1][1])
        )
        f = functools.partial(self.run, implementation=implementation)
        got = jax.jit(jax.vmap(f, in_axes=axes))(stacked, masks)
        for i in range(3):
            one = {k: diffs[i if k in moving else 0][k] for k in diffs[0]}
            assert_close(got[i], self.spec.oracle(one, pairs[i if many_masks else 1][1]), "float32")

    def test_vmap_of_grad(self, implementation, rng):
        pairs = [self.spec.inputs(rng, d) for d in (0.2, 0.7)]
        diffs = [cast(d, "float32") for d, _ in pairs]
        stacked = jax.tree.map(lambda *v: jnp.stack(v), *diffs)
        masks = jnp.stack([jnp.asarray(m) for _, m in pairs])

        def gradient(d, m):
            return jax.grad(lambda d: jnp.sum(jnp.sin(self.run(d, m, implementation))))(d)

        got = jax.jit(jax.vmap(gradient))(stacked, masks)
        for i in range(2):
            want = gradient(diffs[i], masks[i])
            for name in want:
                assert_close(got[name][i], want[name], "float32", scale=2.0)

    def test_scan_and_remat(self, implementation, rng):
        pairs = [self.spec.inputs(rng, d) for d in (0.2, 0.9)]
        diff = cast(pairs[0][0], "float32")
        masks = jnp.stack([jnp.asarray(m) for _, m in pairs])

        @jax.checkpoint
        def step(total, mask):
            return total + jnp.sum(jnp.sin(self.run(diff, mask, implementation))), None

        def loss(d):
            def body(total, mask):
                return total + jnp.sum(jnp.sin(self.run(d, mask, implementation))), None

            return jax.lax.scan(jax.checkpoint(body), jnp.float32(0), masks)[0]

        want = sum(jnp.sum(jnp.sin(self.run(diff, m, implementation))) for m in masks)
        assert_close(
            jax.jit(lambda m: jax.lax.scan(step, jnp.float32(0), m)[0])(masks), want, "float32"
        )
        got = jax.jit(jax.grad(loss))(diff)
        plain = jax.grad(
            lambda d: sum(jnp.sum(jnp.sin(self.run(d, m, implementation))) for m in masks)
        )(diff)
        for name in got:
            assert_close(got[name], plain[name], "float32", scale=2.0)

    @pytest.mark.skipif(len(jax.devices()) < 4, reason="needs four devices")
    def test_shard_map(self, implementation, rng):
        pairs = [self.spec.inputs(rng, 0.4) for _ in range(4)]
        diffs = [cast(d, "float32") for d, _ in pairs]
        one = diffs[0]
        whole = {
            k: jnp.concatenate([d[k] for d in diffs]) if k in self.spec.images else one[k]
            for k in one
        }
        mask = jnp.concatenate([jnp.asarray(m) for _, m in pairs])
        auto = (jax.sharding.AxisType.Auto,)
        mesh = jax.make_mesh((4,), ("data",), devices=jax.devices()[:4], axis_types=auto)
        specs = {k: P("data") if k in self.spec.images else P() for k in one}
        f = functools.partial(self.run, implementation=implementation)
        sharded = jax.jit(
            jax.shard_map(f, mesh=mesh, in_specs=(specs, P("data")), out_specs=P("data"))
        )
        assert_close(sharded(whole, mask), f(whole, mask), "float32")
        assert "all-gather" not in sharded.lower(whole, mask).compile().as_text()
        got = jax.jit(jax.grad(lambda d: jnp.sum(jnp.sin(sharded(d, mask)))))(whole)
        want = jax.grad(lambda d: jnp.sum(jnp.sin(f(d, mask))))(whole)
        for name in one:
            assert_close(got[name], want[name], "float32", scale=2.0)

    def test_export(self, implementation, rng):
        diff, mask = self.spec.inputs(rng, 0.4)
        diff, mask = cast(diff, "float32"), jnp.asarray(mask)
        f = jax.jit(functools.partial(self.run, implementation=implementation))
        blob = jax.export.export(f, disabled_checks=js.DISABLE_JAX_EXPORT_CHECKS)(diff, mask)
        again = jax.export.deserialize(blob.serialize())
        assert_close(again.call(diff, mask), f(diff, mask), "float32")

    def test_overflow_is_flagged_and_written_nowhere(self, implementation, rng):
        diff, mask = self.spec.inputs(rng, 0.6)
        index = js.tile_index(jnp.asarray(mask), (2, 2), capacity=3, ordered=True)
        assert bool(index.overflow)
        listed = np.zeros(mask.shape, bool)
        b, h, w = mask.shape
        cells = np.stack(np.meshgrid(range(b), range(h), range(w), indexing="ij"), -1)
        rows, cols = -(-h // 2), -(-w // 2)
        ids = (cells[..., 0] * rows + cells[..., 1] // 2) * cols + cells[..., 2] // 2
        listed = np.isin(ids, np.unique(ids[mask])[:3]) & mask
        got = self.run(cast(diff, "float32"), index, implementation)
        assert_close(got, self.spec.oracle(diff, listed), "float32")

    def test_nan_in_masked_lanes(self, implementation, rng):
        diff, mask = self.spec.inputs(rng, 0.3)
        mask = np.array(mask)
        mask[:, :, mask.shape[2] // 2 :] = False
        x = np.array(diff["x"])
        want = self.spec.oracle(diff, mask)
        x[:, :, -x.shape[2] // 4 :] = np.nan
        diff = cast({**diff, "x": x}, "float32")
        assert_close(self.run(diff, jnp.asarray(mask), implementation), want, "float32")
        got = jax.grad(lambda d: jnp.sum(self.run(d, jnp.asarray(mask), implementation) ** 2))(diff)
        for name, gradient in got.items():
            assert np.isfinite(np.asarray(gradient)).all(), name

    def test_bitwise_repeat(self, implementation, rng):
        diff, mask = self.spec.inputs(rng, 0.5)
        diff, mask = cast(diff, "float32"), jnp.asarray(mask)
        with js.config(deterministic=True):
            f = jax.jit(
                jax.value_and_grad(lambda d, m: jnp.sum(jnp.sin(self.run(d, m, implementation))))
            )
            first = jax.tree.map(np.asarray, f(diff, mask))
            for _ in range(4):
                again = f(diff, mask)
                jax.tree.map(
                    lambda a, b: np.testing.assert_array_equal(a, np.asarray(b)), first, again
                )
