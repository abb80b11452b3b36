"""The CPU's executor of products of one row: widths, dtypes, parts, what it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ops.op_suite import assert_close

import jaxsparse as js
from jaxsparse.core.geometry import Geometry
from jaxsparse.ffi.register import module
from jaxsparse.ops.pruned_matmul.run import PrunedParams, call
from jaxsparse.pruned.executor import Problem
from jaxsparse.pruned.executors import dots


@pytest.fixture(autouse=True)
def on_cpu():
    """Also where JAX sees a GPU."""
    with jax.default_device(jax.devices("cpu")[0]):
        yield


needs_cpu = pytest.mark.skipif(module("cpu")[0] is None, reason="no CPU module")


def drawn(rng, inputs, outputs, fill=0.2):
    """x, a weight and its plan."""
    shape = inputs, outputs
    w = np.where(rng.random(shape) < fill, rng.standard_normal(shape), 0).astype(np.float32)
    return jnp.asarray(rng.standard_normal((1, inputs)), jnp.float32), w, js.pruned.inspect(w)


def problem_of(plan, rows=1):
    shape = rows, plan.pattern.n_in
    return Problem(plan.pattern, "cpu", shape, "float32", "float32", "default")


@needs_cpu
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (7, 300), (513, 33), (64, 16)])
def test_products(rng, inputs, outputs):
    x, w, plan = drawn(rng, inputs, outputs)
    bias = jnp.asarray(rng.standard_normal(outputs), jnp.float32)
    with js.config(variant="dots"):
        got = js.pruned_matmul(x, plan, bias=bias, activation="relu", implementation="cpu")
    want = np.asarray(x, np.float64) @ w + np.asarray(bias)
    assert_close(got, np.maximum(want, 0).astype(np.float32), "float32")


@needs_cpu
@pytest.mark.parametrize("activation", [None, "relu6", "silu", "gelu"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_dtypes_and_activations(rng, dtype, activation):
    x, _, plan = drawn(rng, 70, 45)
    x, plan = x.astype(dtype), plan.astype(dtype)
    with js.config(variant="dots"):
        got = js.pruned_matmul(x, plan, activation=activation, implementation="cpu")
    want = js.pruned_matmul(x, plan, activation=activation, implementation="reference")
    assert_close(got, want, dtype)


@needs_cpu
def test_parts_do_not_change_the_result(rng, monkeypatch):
    """Results are bitwise the same however many workers share a call."""
    x, _, plan = drawn(rng, 900, 700)
    found = []
    for least in (1e9, 1.0):
        monkeypatch.setattr(dots, "_MEASURED", Fixed(part=least))
        packed = dots.pack(problem_of(plan))
        found.append((packed.parts, run(plan, packed, x)))
    assert found[0][0] == 1 < found[1][0]
    np.testing.assert_array_equal(found[0][1], found[1][1])


class Fixed(dict):
    """Constants as the executor asks for them."""

    def __call__(self, name):
        return self.get(name, 1.0)


def run(plan, packed, x):
    """A call of the handler with these operands."""
    p = PrunedParams(plan.pattern, None, False, None, "default", "float32")
    return np.asarray(call(p, packed, x, plan.values, None))


def test_what_it_refuses(rng):
    _, _, plan = drawn(rng, 8, 8)
    assert dots.reason_against(problem_of(plan)) is None
    assert "one row of x, not 2" in dots.reason_against(problem_of(plan, 2))
    wide = js.pruned.inspect(np.ones((65537, 1), np.float32))
    assert "up to 65536 inputs, not 65537" in dots.reason_against(problem_of(wide))
    conv = js.pruned.inspect(np.ones((3, 3, 2, 2), np.float32), kind="conv")
    geo = Geometry((1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), 1)
    windows = Problem(conv.pattern, "cpu", (1, 1, 1, 2), "float32", "float32", "default", geo)
    assert "not windows" in dots.reason_against(windows)
