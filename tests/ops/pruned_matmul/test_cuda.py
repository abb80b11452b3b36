"""The CUDA executors of frozen weights, each demanded by name, against float64 numpy."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsparse as js
from jaxsparse.pruned.plan import Tuned

pytestmark = pytest.mark.gpu
TOLERANCE = {"float32": 2e-6, "bfloat16": 1e-2, "float16": 2e-3}
SHAPES = [(33, 64, 40), (64, 132, 70), (300, 128, 48), (100, 260, 31), (32, 8, 1)]


def weight(rng, k, n, sparsity):
    """A weight with an empty and a full output, where there are enough."""
    w = rng.standard_normal((k, n)).astype(np.float32) / np.float32(max(1.0, k * (1 - sparsity)))
    w = np.where(rng.random((k, n)) >= sparsity, w, 0)
    if n > 3 and 0 < sparsity < 1:
        w[:, 1], w[:, 2] = 0, 0.25
    return w.astype(np.float32)


def assert_close(y, want, dtype):
    y = np.asarray(y.astype(jnp.float32), np.float64)
    np.testing.assert_array_less(abs(y - want), TOLERANCE[dtype] * (8 + abs(want)))


def rounded(w, dtype):
    """The weight in a dtype, and what it then is."""
    cast = jnp.asarray(w, dtype)
    return cast, np.asarray(cast.astype(jnp.float32), np.float64)


def product(x, plan, executor, **options):
    """With the weight as an operand; as a constant for generated code, which builds it in."""

    def run(x):
        with js.config(variant=executor):
            return js.pruned_matmul(x, plan, implementation="cuda", **options)

    return jax.jit(run)(x) if executor == "code" else run(x)


@pytest.mark.parametrize("executor", ["rows", "code"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("sparsity", [0.0, 0.5, 0.95, 1.0])
@pytest.mark.parametrize("size", SHAPES)
def test_products(rng, executor, dtype, sparsity, size):
    m, k, n = size
    if executor == "code" and k % (4 if dtype == "float32" else 8):
        pytest.skip("rows are not whole 16-byte pieces")
    w, kept = rounded(weight(rng, k, n, sparsity), dtype)
    x = jnp.asarray(rng.standard_normal((m, k)), dtype)
    want = np.asarray(x.astype(jnp.float32), np.float64) @ kept
    assert_close(product(x, js.pruned.inspect(w), executor), want, dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("m", "k", "n", "shape"),
    [
        (49, 256, 128, (32, 4, 2, 4)),
        (225, 264, 100, (32, 4, 7, 2)),
        (392, 256, 35, (32, 2, 4, 8)),
        (33, 512, 64, (64, 1, 1, 8)),
        (500, 256, 256, (32, 4, 7)),
    ],
)
def test_code_whose_inputs_are_split(rng, monkeypatch, m, k, n, shape, dtype):
    """Clusters add up their parts; modules of a product overlap."""
    if float(jax.devices("cuda")[0].compute_capability) < 9.0:
        pytest.skip("no clusters of blocks")
    monkeypatch.setattr("jaxsparse.pruned.executors.cuda.MODULE_PRODUCTS", 500)
    monkeypatch.setattr("jaxsparse.pruned.executors.cuda._code_candidates", lambda p: [shape])
    w = np.where(rng.random((k, n)) >= 0.9, rng.standard_normal((k, n)), 0).astype(np.float32)
    plan = js.pruned.inspect(jnp.asarray(w, dtype))
    facts = ("cuda", (m, k), dtype, None, False, "code", shape, 1.0)
    plan = dataclasses.replace(plan, plan=dataclasses.replace(plan.plan, tuned=(Tuned(*facts),)))
    x, bias = jnp.asarray(rng.standard_normal((m, k)), dtype), jnp.asarray(rng.random(n))
    y = np.asarray(product(x, plan, "code", bias=bias).astype(jnp.float32), np.float64)
    exact, kept = np.asarray(x, np.float64), np.asarray(plan.to_dense(), np.float64)
    want, sizes = exact @ kept + np.asarray(bias), abs(exact) @ abs(kept) + 1
    rounding = 0 if dtype == "float32" else float(jnp.finfo(dtype).eps)
    np.testing.assert_array_less(abs(y - want), rounding * abs(want) + 1e-5 * sizes)


@pytest.mark.parametrize("executor", ["pairs", "lanes", "runs"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("m", [1, 2, 3, 7, 16, 33])
@pytest.mark.parametrize("sparsity", [0.0, 0.5, 0.9, 1.0])
@pytest.mark.parametrize(("k", "n"), [(64, 16), (520, 300), (4104, 130)])
def test_few_rows(rng, executor, dtype, m, sparsity, k, n):
    if executor in ("lanes", "runs") and m > 16:
        pytest.skip("it takes up to 16 rows")
    w = np.where(rng.random((k, n)) >= sparsity, rng.standard_normal((k, n)), 0)
    check_rounding(rng, w, m, dtype, executor)


@pytest.mark.parametrize("n", [6400, 12800, 25600])
def test_lanes_of_many_outputs(rng, n):
    """Enough outputs for 2, 4 and 8 strips a block."""
    w = np.where(rng.random((64, n)) >= 0.9, rng.standard_normal((64, n)), 0)
    check_rounding(rng, w, 3, "bfloat16", "lanes")


def check_rounding(rng, w, m, dtype, executor):
    """The product is right to the rounding of its result and of sums in float32."""
    w, kept = rounded(w, dtype)
    x = jnp.asarray(rng.standard_normal((m, kept.shape[0])), dtype)
    exact = np.asarray(x.astype(jnp.float32), np.float64)
    y = np.asarray(product(x, js.pruned.inspect(w), executor).astype(jnp.float32), np.float64)
    want, sizes = exact @ kept, abs(exact) @ abs(kept)
    rounding = float(jnp.finfo(dtype).eps)
    np.testing.assert_array_less(abs(y - want), rounding * abs(want) + 1e-5 * sizes + 1e-6)


def test_code_of_several_modules(rng):
    """More kept weights than a module holds; traced twice: the second time as it was packed."""
    w = np.where(rng.random((512, 300)) >= 0.75, rng.standard_normal((512, 300)), 0)
    plan, x = (
        js.pruned.inspect(w.astype(np.float32)),
        rng.standard_normal((77, 512)).astype(np.float32),
    )
    bias = jnp.asarray(rng.standard_normal(300), jnp.float32)
    want, sizes = x.astype(np.float64) @ w + np.asarray(bias), abs(x) @ abs(w) + 1
    for _ in range(2):
        y = product(jnp.asarray(x), plan, "code", bias=bias)
        np.testing.assert_array_less(abs(y - want), 1e-5 * sizes)
        jax.clear_caches()


@pytest.mark.parametrize("executor", ["pairs", "lanes", "runs"])
@pytest.mark.parametrize("activation", [None, "relu", "silu"])
def test_few_rows_with_bias_in_float32(rng, executor, activation):
    w, kept = rounded(weight(rng, 256, 300, 0.9), "bfloat16")
    x = jnp.asarray(rng.standard_normal((5, 256)), jnp.bfloat16)
    bias = jnp.asarray(rng.standard_normal(300), jnp.float32)
    options = {"bias": bias, "activation": activation, "preferred_element_type": jnp.float32}
    y = product(x, js.pruned.inspect(w), executor, **options)
    want = np.asarray(x.astype(jnp.float32), np.float64) @ kept + np.asarray(bias)
    if activation == "relu":
        want = np.maximum(want, 0)
    elif activation == "silu":
        want = want / (1 + np.exp(-want))
    np.testing.assert_allclose(y, want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("granularity", [(1, 8), (1, 1)])
@pytest.mark.parametrize("sparsity", [0.0, 0.9, 1.0])
@pytest.mark.parametrize(
    "size", [(33, 64, 40), (64, 136, 70), (300, 640, 300), (32, 8, 1), (70, 520, 600)]
)
def test_vectors(rng, dtype, granularity, sparsity, size):
    m, k, n = size
    w = rng.standard_normal((k, n)).astype(np.float32)
    w, kept = rounded(w * js.prune.magnitude(w, sparsity, granularity), dtype)
    x = jnp.asarray(rng.standard_normal((m, k)), dtype)
    y = product(x, js.pruned.inspect(w), "vectors", activation="relu")
    exact = np.asarray(x.astype(jnp.float32), np.float64)
    want, sizes = np.maximum(exact @ kept, 0), abs(exact) @ abs(kept)
    y = np.asarray(y.astype(jnp.float32), np.float64)
    rounding = float(jnp.finfo(dtype).eps)
    sums = 2.0**-9 + 1e-5 if dtype == "float32" else 1e-5  # TF32 keeps 10 bits of each factor
    np.testing.assert_array_less(abs(y - want), rounding * abs(want) + sums * sizes + 1e-6)


@pytest.mark.parametrize("executor", ["pairs", "lanes", "runs", "vectors"])
def test_values_of_16_bits_as_an_operand(rng, executor):
    w, kept = rounded(weight(rng, 512, 300, 0.9), "bfloat16")
    x = jnp.asarray(rng.standard_normal((8, 512)), jnp.bfloat16)
    run = jax.jit(lambda x, plan: product(x, plan, executor))
    want = np.asarray(x.astype(jnp.float32), np.float64) @ kept
    for scale in (1.0, -2.0, 4.0):
        changed = jax.tree.map(lambda v, s=scale: v * jnp.bfloat16(s), js.pruned.inspect(w))
        assert_close(run(x, changed), scale * want, "bfloat16")


@pytest.mark.parametrize("executor", ["rows", "code"])
@pytest.mark.parametrize("activation", [None, "relu", "relu6", "silu", "gelu"])
def test_bias_and_activation(rng, executor, activation):
    w = weight(rng, 64, 40, 0.8)
    x = jnp.asarray(rng.standard_normal((70, 64)), jnp.float32)
    bias = jnp.asarray(rng.standard_normal(40), jnp.float32)
    plan = js.pruned.inspect(w)
    y = product(x, plan, executor, bias=bias, activation=activation)
    want = js.pruned_matmul(
        x, plan, bias=bias, activation=activation, precision="highest", implementation="reference"
    )
    np.testing.assert_allclose(y, want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("size", "window", "strides", "padding", "dilation"),
    [
        ((2, 9, 11, 5), (3, 3), (1, 1), "SAME", (1, 1)),
        ((1, 14, 14, 16), (3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1)),
        ((3, 8, 7, 6), (5, 3), (1, 2), "VALID", (1, 1)),
        ((1, 12, 12, 8), (3, 3), (1, 1), "SAME", (2, 2)),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_convolutions(rng, size, window, strides, padding, dilation, dtype):
    shape = (*window, size[3], 13)
    kernel = np.where(rng.random(shape) < 0.2, rng.standard_normal(shape), 0).astype(np.float32)
    x = jnp.asarray(rng.standard_normal(size), dtype)
    cast, kept = rounded(kernel, dtype)
    plan, exact = (js.pruned.inspect(w, kind="conv") for w in (cast, kept.astype(np.float32)))
    options = {"strides": strides, "padding": padding, "dilation": dilation}
    with js.config(variant="rows"):
        y = js.pruned_conv(x, plan, implementation="cuda", **options)
    want = js.pruned_conv(
        x.astype(jnp.float32), exact, implementation="reference", precision="highest", **options
    )
    assert_close(y, np.asarray(want, np.float64), dtype)


@pytest.mark.parametrize("executor", ["rows", "code"])
def test_under_jit_again_and_again(rng, executor):
    w = weight(rng, 128, 96, 0.9)
    plan = js.pruned.inspect(w)
    run = jax.jit(lambda x: product(x, plan, executor))
    for _ in range(5):
        x = rng.standard_normal((200, 128)).astype(np.float32)
        assert_close(run(x), x.astype(np.float64) @ w.astype(np.float64), "float32")


def test_code_that_two_threads_need_at_once(rng):
    """The first executions of two functions of one weight: assembled once, right in both."""
    w = np.where(rng.random((256, 96)) >= 0.8, rng.standard_normal((256, 96)), 0)
    plan, x = (
        js.pruned.inspect(w.astype(np.float32)),
        rng.standard_normal((64, 256)).astype(np.float32),
    )
    runs = [
        jax.jit(lambda x, t=t: t * product(x, plan, "code", precision="highest")) for t in (1, 2)
    ]
    calls = [run.lower(jnp.asarray(x)).compile() for run in runs]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda call: np.asarray(call(jnp.asarray(x))), calls))
    for times, y in zip((1, 2), found, strict=True):
        assert_close(jnp.asarray(y / times), x.astype(np.float64) @ w, "float32")


def test_values_as_an_operand(rng):
    w = weight(rng, 64, 48, 0.7)
    plan = js.pruned.inspect(w)
    x = rng.standard_normal((40, 64)).astype(np.float32)
    run = jax.jit(lambda x, plan: product(x, plan, "rows"))
    for scale in (1.0, -3.0):
        changed = jax.tree.map(lambda v, s=scale: v * np.float32(s), plan)
        assert_close(run(x, changed), scale * (x.astype(np.float64) @ w), "float32")


@pytest.mark.parametrize("executor", ["rows", "code", "split"])
def test_a_nan_reaches_only_what_keeps_a_weight_for_it(rng, executor):
    w = weight(rng, 64, 48, 0.8)
    x = rng.standard_normal((40, 64)).astype(np.float32)
    x[3, 5] = np.nan
    y = np.asarray(product(jnp.asarray(x), js.pruned.inspect(w), executor, precision="highest"))
    want = np.zeros((40, 48), bool)
    want[3] = w[5] != 0
    np.testing.assert_array_equal(np.isnan(y), want)


def test_why_an_executor_cannot_run(rng):
    plan = js.pruned.inspect(weight(rng, 66, 8, 0.5))
    with pytest.raises(ValueError, match="multiple of 4"):
        product(jnp.zeros((64, 66)), plan, "code")
    with pytest.raises(ValueError, match="16-bit"):
        product(jnp.zeros((8, 66)), plan, "pairs")
    plan = js.pruned.inspect(weight(rng, 64, 8, 0.5))
    with pytest.raises(ValueError, match="there are 31"):
        product(jnp.zeros((31, 64)), plan, "code")
    with pytest.raises(ValueError, match="up to 16 rows"):
        product(jnp.zeros((17, 64), jnp.bfloat16), plan.astype(jnp.bfloat16), "lanes")
    with js.config(variant="vectors"), pytest.raises(ValueError, match="TF32"):
        js.pruned_matmul(jnp.zeros((64, 64)), plan, precision="highest", implementation="cuda")
    with js.config(variant="code"), pytest.raises(ValueError, match="are an operand"):
        js.pruned_matmul(jnp.zeros((64, 64)), plan, implementation="cuda")


def test_dense_comes_first_where_nothing_won(rng):
    """By default `code` runs for wide float32 calls at "highest", and dense for every other."""
    plan = js.pruned.inspect(weight(rng, 256, 128, 0.95))
    for rows, precision, name in [
        (2048, "highest", "code"),
        (2048, None, "dense"),
        (64, "highest", "dense"),
    ]:
        x = jnp.asarray(rng.standard_normal((rows, 256)), jnp.float32)
        text = str(js.explain(lambda x, p=precision: js.pruned_matmul(x, plan, precision=p), x))
        assert f"ran {name}: " in text
