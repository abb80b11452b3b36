"""The split executor on CUDA: every tile, one part to eight, against float64 numpy."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsparse as js
from jaxsparse.core.device import shared_bytes
from jaxsparse.pruned.layouts.split import SplitShape, pack_split
from jaxsparse.pruned.plan import Tuned

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def clusters():
    if float(jax.devices("cuda")[0].compute_capability) < 9.0:
        pytest.skip("no clusters of blocks")


def run(x, plan, **options):
    with js.config(variant="split"):
        return js.pruned_matmul(x, plan, implementation="cuda", precision="highest", **options)


def check(y, x, w, bias=0.0):
    exact, kept = np.asarray(x, np.float64), np.asarray(w, np.float64)
    sizes = abs(exact) @ abs(kept) + 1
    np.testing.assert_array_less(abs(np.asarray(y, np.float64) - exact @ kept - bias), 1e-5 * sizes)


def weight(rng, k, n, density):
    w = np.where(rng.random((k, n)) < density, rng.standard_normal((k, n)), 0)
    if n > 3 and 0 < density < 1:
        w[:, 1], w[:, 2] = 0, 0.25
    return w.astype(np.float32)


@pytest.mark.parametrize("density", [0.0, 0.1, 1.0])
@pytest.mark.parametrize(
    ("m", "k", "n"), [(1, 4, 1), (33, 64, 40), (49, 2048, 65), (300, 516, 130), (70, 1000, 33)]
)
def test_products(rng, m, k, n, density):
    w, x = weight(rng, k, n, density), rng.standard_normal((m, k)).astype(np.float32)
    check(run(jnp.asarray(x), js.pruned.inspect(w)), x, w)


@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize("inputs", [128, 256])
@pytest.mark.parametrize(("outputs", "rounds"), [(16, 3), (32, 1), (64, 2), (128, 1)])
def test_every_tile(rng, monkeypatch, rows, inputs, outputs, rounds):
    shape = SplitShape(rows, inputs, outputs, rounds)
    monkeypatch.setattr("jaxsparse.pruned.executors.split._choices", lambda problem: [shape])
    w, x = weight(rng, 600, 150, 0.1), rng.standard_normal((229, 600)).astype(np.float32)
    plan, bias = js.pruned.inspect(w), rng.standard_normal(150).astype(np.float32)
    facts = ("cuda", x.shape, "float32", None, False, "split", dataclasses.astuple(shape), 1.0)
    plan = dataclasses.replace(plan, plan=dataclasses.replace(plan.plan, tuned=(Tuned(*facts),)))
    chain = jax.jit(lambda x: run(x, plan, bias=jnp.asarray(bias)))
    if shape.shared_bytes(600) > shared_bytes():
        with pytest.raises(jax.errors.JaxRuntimeError, match="do not fit the executor"):
            jax.block_until_ready(chain(jnp.asarray(x)))
        return
    for _ in range(3):
        check(chain(jnp.asarray(x)), x, w, bias)


@pytest.mark.parametrize("activation", [None, "relu", "silu"])
def test_bias_activation_and_values_as_an_operand(rng, activation):
    w, x = weight(rng, 512, 96, 0.1), rng.standard_normal((90, 512)).astype(np.float32)
    plan, bias = js.pruned.inspect(w), jnp.asarray(rng.standard_normal(96), jnp.float32)
    call = jax.jit(lambda x, plan: run(x, plan, bias=bias, activation=activation))
    for scale in (1.0, -2.0):
        changed = jax.tree.map(lambda v, s=scale: v * np.float32(s), plan)
        want = js.pruned_matmul(
            x, changed, bias=bias, activation=activation, precision="highest",
            implementation="reference",
        )  # fmt: skip
        np.testing.assert_allclose(call(x, changed), want, rtol=2e-5, atol=5e-5)


def test_one_after_the_other(rng):
    """A call reads what the one before it wrote, though it may begin earlier."""
    w = weight(rng, 256, 256, 0.1)
    plan, x = js.pruned.inspect(w), rng.standard_normal((600, 256)).astype(np.float32)
    chain = jax.jit(lambda x: run(run(run(x, plan), plan), plan))
    step = jax.jit(lambda x: run(x, plan))
    want = step(jax.block_until_ready(step(jax.block_until_ready(step(x)))))
    for _ in range(5):
        np.testing.assert_array_equal(chain(x), want)


def test_a_nan_reaches_only_what_keeps_a_weight_for_it(rng):
    w, x = weight(rng, 300, 48, 0.2), rng.standard_normal((40, 300)).astype(np.float32)
    x[3, 270] = np.nan
    want = np.zeros((40, 48), bool)
    want[3] = w[270] != 0
    np.testing.assert_array_equal(np.isnan(run(jnp.asarray(x), js.pruned.inspect(w))), want)


def test_places_between_floats(rng, monkeypatch):
    """A packed place that points between two floats reads the lower one, and does not fault."""

    def between(*pattern):
        pack = pack_split(*pattern)
        odd = np.tile(np.array([3, 3 << 5], np.uint16), len(pack.places) // 2)
        return dataclasses.replace(pack, places=pack.places | odd)

    monkeypatch.setattr("jaxsparse.pruned.executors.split.pack_split", between)
    w, x = weight(rng, 516, 70, 0.2), rng.standard_normal((90, 516)).astype(np.float32)
    check(run(jnp.asarray(x), js.pruned.inspect(w)), x, w)


def test_why_it_cannot_run(rng):
    for k, dtype, why in [
        (66, jnp.float32, "multiple of 4"),
        (64, jnp.bfloat16, "float32"),
        (2052, jnp.float32, "8 blocks"),
    ]:
        plan = js.pruned.inspect(jnp.asarray(weight(rng, k, 8, 0.5), dtype))
        with pytest.raises(ValueError, match=why):
            run(jnp.zeros((64, k), dtype), plan)
