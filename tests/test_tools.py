"""JAX's tools around compiled functions: debug_nans, the persistent cache, AOT, cost analysis."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsparse as js

RNG = np.random.default_rng(0)
#: On a GPU variants round to TF32.
LIMIT = 1e-5 if jax.default_backend() == "cpu" else 2e-2
X = jnp.asarray(RNG.standard_normal((2, 9, 11, 4)), jnp.float32)
KERNEL = jnp.asarray(RNG.standard_normal((3, 3, 4, 6)), jnp.float32)
MASK = jnp.asarray(RNG.random((2, 9, 11)) < 0.4)
TOKENS, KEEP = X.reshape(-1, 4), MASK.reshape(-1)
W = jnp.asarray(RNG.standard_normal((4, 6)), jnp.float32)
LAYER = js.bounded.inspect(np.asarray(W) * 0 + 1, -1.0, 1.0)  # saturates, or is all zero
ROWS = jnp.asarray([[0, 0, 0, 0], [5, 5, 5, 5], [0.1, 0.6, 0.7, 0.1]], jnp.float32)


def spoiled(x, keep):
    return jnp.where(jnp.asarray(keep)[..., None], x, jnp.nan)


#: Ops given NaN where they do not read.
CALLS = {
    "masked_conv": lambda: js.masked_conv(spoiled(X, MASK), KERNEL[1:2, 1:2], MASK),
    "masked_dense": lambda: js.masked_dense(spoiled(X, MASK), W, MASK),
    "masked_matmul": lambda: js.masked_matmul(
        spoiled(TOKENS, KEEP), W, a_mask=KEEP[:, None], granularity=(1, 4)
    ),
    "masked_norm": lambda: js.masked_norm(spoiled(X, MASK), MASK),
    "masked_pool": lambda: js.masked_pool(spoiled(X, MASK), MASK, (2, 2)),
    "grouped_matmul": lambda: js.grouped_matmul(
        spoiled(TOKENS, jnp.arange(len(TOKENS)) < 7), W[None], jnp.asarray([7])
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_debug_nans_does_not_stop_at_what_is_not_read(name):
    call = CALLS[name]
    want = call()
    assert np.isfinite(want).all()
    with jax.debug_nans(True):
        with pytest.raises(FloatingPointError):
            jnp.log(-jnp.ones(2))
        np.testing.assert_allclose(jax.jit(call)(), want, rtol=LIMIT, atol=LIMIT)


@pytest.mark.parametrize("eager", [True, False])
@pytest.mark.parametrize("name", ["masked_dense", "masked_matmul", "masked_norm", "masked_conv"])
def test_debug_nans_and_eager_calls(name, eager):
    tokens, image = spoiled(TOKENS, KEEP), spoiled(X, MASK)
    calls = {
        "masked_conv": lambda x: js.masked_conv(x, KERNEL[1:2, 1:2], MASK),
        "masked_dense": lambda x: js.masked_dense(x, W, MASK),
        "masked_matmul": lambda x: js.masked_matmul(x, W, a_mask=KEEP[:, None], granularity=(1, 4)),
        "masked_norm": lambda x: js.masked_norm(x, MASK),
    }
    call, x = calls[name], tokens if name == "masked_matmul" else image
    want = call(x)
    with jax.debug_nans(True):
        np.testing.assert_allclose(
            (call if eager else jax.jit(call))(x), want, rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("what", ["layer", "network"])
def test_debug_nans_leaves_nothing_undefined(what, implementation):
    def run(x):
        if what == "layer":
            return js.bounded_matmul(x, LAYER, implementation=implementation)
        square = js.bounded.inspect(np.eye(6, dtype=np.float32), -0.2, 1.0)
        return js.bounded.network([LAYER, square], implementation=implementation)(x)

    plain = run(ROWS)
    want = np.asarray(plain.materialize())  # here: its values are undefined where a code is set
    assert (np.asarray(plain.recorder.codes) != 0).any()
    with jax.debug_nans(True):
        for call in (run, jax.jit(lambda x: run(x))):
            got = call(ROWS)
            np.testing.assert_array_equal(got.values, got.materialize())
            np.testing.assert_array_equal(got.materialize(), want)
        with pytest.raises(FloatingPointError):
            run(jnp.full((3, 4), jnp.nan))


def test_compiled_ahead_of_time():
    index = js.tile_index(MASK, (1, 1))

    def step(x, kernel, index):
        return jax.value_and_grad(lambda x: (js.masked_conv(x, kernel, index) ** 2).sum())(x)

    types = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), (X, KERNEL, index))
    compiled = jax.jit(step).lower(*types).compile()
    got, want = compiled(X, KERNEL, index), step(X, KERNEL, index)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=LIMIT, atol=LIMIT)
    with pytest.raises(TypeError):
        compiled(X[:1], KERNEL, index)


PROGRAM = """
import sys
import jax
import jax.numpy as jnp
import numpy as np
import jaxsparse as js

jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
events = []
jax.monitoring.register_event_listener(lambda name, **_: events.append(name))
x, mask = jnp.arange(99.0).reshape(1, 9, 11, 1), np.eye(9, 11, dtype=bool)[None]
f = jax.jit(lambda x: js.masked_conv(x, jnp.ones((3, 3, 1, 8)), mask))
print(float(f(x).sum()), sum(n.endswith("/cache_hits") for n in events))
"""


def test_persistent_cache(tmp_path):
    """A second process takes the program from the cache, and its handlers are registered there."""
    told = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(tmp_path)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        told.append(done.stdout.split())
    (first, _), (second, hits) = told
    assert float(first) == float(second) > 0
    assert int(hits) > 0


def test_explain_counts_what_cost_analysis_does_not():
    index = js.tile_index(MASK, (1, 1))

    def run(x):
        return js.masked_conv(x, KERNEL, index, implementation=("cuda", "cpu"))

    compiled = jax.jit(run).lower(X).compile()
    counted = compiled.cost_analysis().get("flops", -1)  # XLA: -1 of any custom call
    told = js.explain(run, X)
    assert counted < told.work.flops / 10
    pixels = MASK.size
    assert told.work.flops == told.calls[0].work.flops == 2 * pixels * KERNEL.size
    words = 2 * 9 * 4
    assert told.work.bytes == 4 * (X.size + KERNEL.size + pixels * 6) + words
    assert "at most 8.554e-05 GFLOP" in str(told)


WORK = {
    "masked_dense": (lambda: js.masked_dense(TOKENS, W, KEEP), 198 * 24),
    "masked_matmul": (
        lambda: js.masked_matmul(X, W, a_mask=MASK[..., None], granularity=(1, 4)),
        198 * 24,
    ),
    "grouped_matmul": (
        lambda: js.grouped_matmul(TOKENS, W[None], jnp.asarray([50])),
        198 * 24,
    ),
    "pruned_matmul": (
        lambda: js.pruned_matmul(TOKENS, js.pruned.inspect(np.eye(4, dtype=np.float32))),
        198 * 4,
    ),
    "pruned_conv": (
        lambda: js.pruned_conv(X, js.pruned.inspect(np.asarray(KERNEL), kind="conv")),
        198 * 216,
    ),
    "bounded_matmul": (lambda: js.bounded_matmul(TOKENS, LAYER), None),
}


@pytest.mark.parametrize("name", WORK)
def test_the_work_of_a_call(name):
    function, products = WORK[name]
    (call,) = [c for c in js.explain(function).calls if c.op == name]
    if products is None:
        products = len(TOKENS) * LAYER.weights.shape[0]
    assert call.work.flops == 2 * products
    assert call.work.bytes >= 4 * TOKENS.size
