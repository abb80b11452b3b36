"""pruned_matmul against float64 numpy: shapes, dtypes, gradients, transforms, the weight as a
constant and as an operand.
"""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ops.op_suite import assert_close, cast, rounded

import jaxsparse as js
from jaxsparse.ops.pruned_matmul import run as pruned_matmul_run
from jaxsparse.ops.pruned_matmul.api import prepare

ACTIVATIONS = {
    None: lambda y: y,
    "relu": lambda y: np.maximum(y, 0),
    "relu6": lambda y: np.clip(y, 0, 6),
    "silu": lambda y: y / (1 + np.exp(-y)),
    "gelu": lambda y: 0.5 * y * (1 + np.tanh((2 / np.pi) ** 0.5 * (y + 0.044715 * y**3))),
}


def problem(rng, size=(33, 50, 70), sparsity=0.8):
    m, k, n = size
    w = rng.standard_normal((k, n), np.float32) / np.float32(max(k * (1 - sparsity), 1) ** 0.5)
    w = np.where(js.prune.magnitude(w, sparsity), w, 0)
    return {
        "x": rng.standard_normal((m, k), np.float32),
        "w": w.astype(np.float32),
        "bias": rng.standard_normal(n, np.float32),
    }


def forced(implementation):
    """The sparse executor, whatever the estimate says."""
    sparse = {"cpu": "strips", "cuda": "rows"}.get(implementation)
    return js.config(variant=sparse) if sparse else contextlib.nullcontext()


def run(diff, implementation, plan=None, **options):
    plan = plan or js.pruned.inspect(np.asarray(diff["w"]))
    pruned = plan.from_dense(diff["w"])
    with forced(implementation):
        return js.pruned_matmul(
            diff["x"], pruned, bias=diff["bias"], implementation=implementation, **options
        )


def oracle(diff, activation=None):
    x, w, bias = (np.asarray(diff[k], np.float64) for k in ("x", "w", "bias"))
    return ACTIVATIONS[activation](x @ w + bias)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("sparsity", [0.0, 0.5, 0.95, 1.0])
def test_values(implementation, rng, dtype, sparsity):
    diff = problem(rng, sparsity=sparsity)
    got = run({**cast(diff, dtype), "bias": diff["bias"]}, implementation)
    assert got.dtype == dtype
    want = {**rounded(diff, dtype), "bias": diff["bias"]}
    assert_close(got, oracle(want), dtype)


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_activations(implementation, rng, activation):
    diff = problem(rng)
    got = run(cast(diff, "float32"), implementation, activation=activation)
    assert_close(got, oracle(diff, activation), "float32")


def test_wide_result(implementation, rng):
    diff = {**cast(problem(rng), "bfloat16"), "bias": np.zeros(70, np.float32)}
    got = run(diff, implementation, preferred_element_type=jnp.float32)
    assert got.dtype == jnp.float32
    assert_close(got, oracle(diff), "float32")


@pytest.mark.parametrize("size", [(1, 300, 40), (2, 1, 1), (17, 2500, 33), (500, 30, 5), (0, 4, 4)])
def test_shapes(implementation, rng, size):
    diff = problem(rng, size, 0.9)
    assert_close(run(cast(diff, "float32"), implementation), oracle(diff), "float32")


def test_leading_axes(implementation, rng):
    diff = problem(rng, (24, 50, 70))
    got = run({**diff, "x": diff["x"].reshape(2, 3, 4, 50)}, implementation)
    assert_close(got, oracle(diff).reshape(2, 3, 4, 70), "float32")
    assert_close(run({**diff, "x": diff["x"][0]}, implementation), oracle(diff)[0], "float32")


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_grad(implementation, rng, dtype, activation):
    diff = problem(rng)
    plan = js.pruned.inspect(diff["w"])
    weight = rng.standard_normal((33, 70), np.float32)
    diff = {**cast(diff, dtype), "bias": jnp.asarray(diff["bias"])}
    act = {"relu6": jax.nn.relu6, "silu": jax.nn.silu, "gelu": jax.nn.gelu, "relu": jax.nn.relu}

    def ours(d):
        y = run(d, implementation, plan, activation=activation)
        return jnp.sum(y.astype(jnp.float32) * weight)

    def dense(d):
        w = jnp.where(np.asarray(plan.to_dense()) != 0, d["w"], 0)
        y = act.get(activation, lambda v: v)(d["x"] @ w + d["bias"])
        return jnp.sum(y * weight)

    got = jax.grad(ours)(diff)
    with jax.default_matmul_precision("highest"):
        want = jax.grad(dense)({k: v.astype(jnp.float32) for k, v in diff.items()})
    for name in diff:
        assert_close(got[name], want[name], dtype, scale=4.0)


def test_constant_and_operand(implementation, rng):
    """One compile serves every set of values; a closed-over weight gives the same result."""
    diff = problem(rng)
    plan, traces = js.pruned.inspect(diff["w"]), []

    @jax.jit
    def f(x, pruned):
        traces.append(1)
        with forced(implementation):
            return js.pruned_matmul(x, pruned, implementation=implementation)

    for scale in (1.0, -2.0):
        pruned = plan.with_values(plan.values * scale)
        want = scale * (diff["x"].astype(np.float64) @ diff["w"])
        assert_close(f(diff["x"], pruned), want, "float32")
        with forced(implementation):
            constant = jax.jit(
                lambda x, p=pruned: js.pruned_matmul(x, p, implementation=implementation)
            )
            assert_close(constant(diff["x"]), want, "float32")
            got = jax.jit(jax.grad(lambda x, c=constant: jnp.sum(c(x) ** 2)))(diff["x"])
        assert_close(got, 2 * want @ (scale * diff["w"].T), "float32", scale=4.0)
    assert len(traces) == 1


def test_a_step_of_fine_tuning_keeps_the_pattern(implementation, rng):
    diff = problem(rng)
    pruned = js.pruned.inspect(diff["w"])

    def loss(p):
        with forced(implementation):
            return jnp.mean(js.pruned_matmul(diff["x"], p, implementation=implementation) ** 2)

    gradient = jax.jit(jax.grad(loss))(pruned)
    assert gradient.plan == pruned.plan
    stepped = jax.tree.map(lambda v, g: v - 0.1 * g, pruned, gradient)
    assert loss(stepped) < loss(pruned)
    assert ((np.asarray(stepped.to_dense()) != 0) <= (diff["w"] != 0)).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_inf_reach_only_their_row(implementation, rng, bad):
    diff = problem(rng)
    diff["w"][:, 7] = 0
    diff["x"][4, 3] = bad
    got = np.asarray(run(diff, implementation))
    assert not np.isfinite(got[4][diff["w"][3] != 0]).any()
    rest = {**diff, "x": np.delete(diff["x"], 4, 0)}
    assert_close(np.delete(got, 4, 0), oracle(rest), "float32")


def test_a_float64_bias_is_taken_as_x_is(rng):
    diff = {k: v.astype(np.float64) for k, v in problem(rng).items()}
    pruned = js.pruned.inspect(diff["w"])
    got = js.pruned_matmul(diff["x"], pruned, bias=diff["bias"], precision="highest")
    assert_close(got, oracle(diff), "float32")
    with pytest.raises(TypeError, match="bias has dtype int"):
        js.pruned_matmul(diff["x"], pruned, bias=np.ones(70, int))


@settings(max_examples=15)
@given(
    data=st.data(),
    size=st.tuples(st.integers(0, 70), st.integers(0, 90), st.integers(0, 60)),
    sparsity=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
)
def test_any_shape(implementation, data, size, sparsity):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**31)))
    diff = problem(rng, size, sparsity)
    assert_close(run(cast(diff, "float32"), implementation), oracle(diff), "float32")


def test_explain_names_the_executor(rng):
    diff = problem(rng)
    pruned = js.pruned.inspect(diff["w"])
    with js.config(variant="dense"):
        text = str(js.explain(lambda x: js.pruned_matmul(x, pruned), diff["x"]))
    assert "ran dense: 700 of 3500" in text


def test_values_that_are_written_to_later(rng):
    """A plan holds what its values were: jitted before, after, or not at all."""
    diff = problem(rng)
    pruned = js.pruned.inspect(diff["w"])
    values = np.array(pruned.values)
    held = pruned.with_values(values)
    bare = js.PrunedWeight(values.copy(), pruned.plan)
    want = {id(p): np.asarray(js.pruned_matmul(diff["x"], p)) for p in (held, bare)}
    first = jax.jit(lambda x: js.pruned_matmul(x, held))(diff["x"])
    jax.jit(lambda x: js.pruned_matmul(x, bare))(diff["x"])
    values *= 2
    bare.values[:] *= 2
    assert_close(first, want[id(held)], "float32")
    assert_close(js.pruned_matmul(diff["x"], held), want[id(held)], "float32")
    assert_close(
        jax.jit(lambda x: js.pruned_matmul(x, held) + 0)(diff["x"]), want[id(held)], "float32"
    )
    again = jax.jit(lambda x: js.pruned_matmul(x, bare) + 0)(diff["x"])
    assert_close(again, 2 * want[id(bare)], "float32")
    for p in (held.astype(jnp.bfloat16), pruned.from_dense(diff["w"])):
        assert not p.values.flags.writeable


def test_equal_constants_compile_once(rng, monkeypatch):
    """An eager gradient through a kernel that is gathered anew each step."""
    diff = problem(rng)
    pruned, x = js.pruned.inspect(diff["w"]), jnp.asarray(diff["x"])
    traced, choose = [], pruned_matmul_run.choose

    def counted(*args, **options):
        traced.append(1)
        return choose(*args, **options)

    monkeypatch.setattr(pruned_matmul_run, "choose", counted)

    def step():
        return jax.grad(lambda x: js.pruned_matmul(x, pruned.from_dense(diff["w"])).sum())(x)

    step()
    before = len(traced)
    assert before > 0
    for _ in range(3):
        step()
    assert len(traced) == before


def test_the_gradient_of_relu_where_the_result_overflows(implementation):
    pruned = js.pruned.inspect(np.full((1, 1), 2.0, np.float16))
    x = jnp.full((1, 1), 60_000, jnp.float16)
    options = {"implementation": implementation, "activation": "relu"}
    got = jax.grad(lambda x: js.pruned_matmul(x, pruned, **options).astype(jnp.float32).sum())(x)
    assert got == 2


@pytest.mark.parametrize(("platform", "name"), [("cpu", "strips"), ("cuda", "code")])
def test_a_demanded_executor_says_why_it_cannot_run(rng, monkeypatch, platform, name):
    diff = problem(rng)
    params, x = prepare(diff["x"], js.pruned.inspect(diff["w"]))
    ways = {
        p: tuple(
            e._replace(reason_against=lambda problem: "the moon is full") if e.name == name else e
            for e in each
        )
        for p, each in pruned_matmul_run.EXECUTORS.items()
    }
    monkeypatch.setattr(pruned_matmul_run, "EXECUTORS", ways)
    monkeypatch.setattr("jaxsparse.select.select.home_platform", lambda: platform)
    with js.config(variant=name), pytest.raises(ValueError, match=f"{name}.*the moon is full"):
        pruned_matmul_run.choose(params, platform, x)
