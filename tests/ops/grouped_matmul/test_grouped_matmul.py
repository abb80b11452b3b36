"""grouped_matmul against float64 numpy: values, gradients, transforms, rows that no group owns."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ops.grouped_matmul.oracle import grouped_matmul as oracle
from ops.op_suite import assert_close, cast, rounded

import jaxsparse as js

pytestmark = pytest.mark.filterwarnings("error")


FORMS = ("plain", "gather", "scatter", "both", "weighted", "all")


def problem(rng, form="all", *, rows=50, depth=24, outputs=40, groups=5, tokens=20):
    """Differentiable arrays and the rest: some rows owned by no group, one group empty."""
    sizes = rng.multinomial(rows - 4, np.ones(groups) / groups)
    sizes[1] = 0
    gathers, scatters = form in ("gather", "both", "all"), form in ("scatter", "both", "all")
    height = tokens if gathers else rows
    diff = {
        "lhs": rng.standard_normal((height, depth), np.float32),
        "rhs": rng.standard_normal((groups, depth, outputs), np.float32) / np.float32(depth**0.5),
    }
    rest = {"group_sizes": sizes.astype(np.int32)}
    if gathers:
        rest["gather"] = rng.integers(0, height, rows).astype(np.int32)
    if scatters:
        rest["scatter"] = rng.integers(0, tokens, rows).astype(np.int32)
        rest["num_rows"] = tokens
    if form in ("weighted", "all"):
        diff["row_weights"] = rng.standard_normal(rows, np.float32)
    return diff, rest


def run(diff, rest, implementation, **options):
    rest = {k: v if k == "num_rows" else jnp.asarray(v) for k, v in rest.items()}
    return js.grouped_matmul(
        diff["lhs"],
        diff["rhs"],
        rest.pop("group_sizes"),
        row_weights=diff.get("row_weights"),
        implementation=implementation,
        **rest,
        **options,
    )


def expected(diff, rest):
    rest = dict(rest)
    return oracle(
        diff["lhs"],
        diff["rhs"],
        rest.pop("group_sizes"),
        row_weights=diff.get("row_weights"),
        **rest,
    )


def dense(diff, rest):
    """The same in differentiable jnp, every group times every row."""
    lhs, sizes = diff["lhs"], jnp.asarray(rest["group_sizes"])
    rows = lhs.shape[0] if "gather" not in rest else rest["gather"].shape[0]
    ends = jnp.cumsum(sizes)
    at = jnp.arange(rows)
    onehot = (at >= (ends - sizes)[:, None]) & (at < ends[:, None])
    x = lhs[rest["gather"]] if "gather" in rest else lhs
    y = jnp.einsum("gm,mk,gkn->mn", onehot.astype(jnp.float32), x, diff["rhs"])
    if "row_weights" in diff:
        y = y * diff["row_weights"][:, None]
    if "scatter" in rest:
        y = jnp.zeros((rest["num_rows"], y.shape[1])).at[rest["scatter"]].add(y)
    return y


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_values(implementation, rng, form, dtype):
    diff, rest = problem(rng, form)
    got = run(cast(diff, dtype), rest, implementation)
    assert got.dtype == dtype
    assert_close(got, expected(rounded(diff, dtype), rest), dtype)


def test_equals_ragged_dot(implementation, rng):
    diff, rest = problem(rng, "plain")
    diff, sizes = cast(diff, "float32"), jnp.asarray(rest["group_sizes"])
    got = run(diff, rest, implementation)
    want = jax.lax.ragged_dot(diff["lhs"], diff["rhs"], sizes)
    assert got.dtype == want.dtype
    assert_close(got, want, "float32")
    half = cast(diff, "bfloat16")
    wide = run(half, rest, implementation, preferred_element_type=jnp.float32)
    assert wide.dtype == jnp.float32
    assert_close(
        wide, oracle(*(np.asarray(half[k], np.float64) for k in ("lhs", "rhs")), sizes), "float32"
    )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_grad(implementation, rng, form, dtype):
    diff, rest = problem(rng, form)
    weight = jnp.asarray(rng.standard_normal(expected(diff, rest).shape, np.float32))
    got = jax.grad(lambda d: jnp.sum(run(d, rest, implementation).astype(jnp.float32) * weight))(
        cast(diff, dtype)
    )
    exact = cast(rounded(diff, dtype), "float32")
    with jax.default_matmul_precision("highest"):
        want = jax.grad(lambda d: jnp.sum(dense(d, rest) * weight))(exact)
    for name in diff:
        assert got[name].dtype == dtype
        assert_close(got[name], want[name], dtype, scale=2.0)


@pytest.mark.parametrize("form", ["plain", "scatter", "all"])
def test_second_derivative(implementation, rng, form):
    diff, rest = problem(rng, form)
    diff = cast(diff, "float32")

    def norm(function, d):
        gradient = jax.grad(lambda d: jnp.sum(jnp.sin(function(d))))(d)
        return sum(jnp.sum(g**2) for g in gradient.values()) * 1e-2

    with jax.default_matmul_precision("highest"):
        got = jax.grad(lambda d: norm(lambda d: run(d, rest, implementation), d))(diff)
        want = jax.grad(lambda d: norm(lambda d: dense(d, rest), d))(diff)
    for name in diff:
        assert_close(got[name], want[name], "float32", scale=20.0)


@pytest.mark.parametrize("form", FORMS)
def test_nan_that_nobody_owns(implementation, rng, form):
    diff, rest = problem(rng, form)
    want = expected(diff, rest)
    unowned = int(rest["group_sizes"].sum())
    diff = {k: np.array(v) for k, v in diff.items()}
    diff["rhs"][1] = np.nan
    if "gather" in rest:
        rest["gather"][unowned:] = len(diff["lhs"])
        diff["lhs"] = np.concatenate(
            [diff["lhs"], np.full((1, diff["lhs"].shape[1]), np.nan, np.float32)]
        )
    else:
        diff["lhs"][unowned:] = np.nan
    if "row_weights" in diff:
        diff["row_weights"][unowned:] = np.nan
    diff = cast(diff, "float32")
    assert_close(run(diff, rest, implementation), want, "float32")
    gradient = jax.grad(lambda d: jnp.sum(run(d, rest, implementation) ** 2))(diff)
    for name, value in gradient.items():
        assert np.isfinite(np.asarray(value)).all(), name


@pytest.mark.parametrize("wild", ["gather", "scatter"])
@pytest.mark.parametrize("both", [False, True])
def test_nan_in_owned_rows_that_do_not_count(implementation, rng, wild, both):
    """An owned row with one index out of range is not read through its other index either."""
    diff, rest = problem(rng, "weighted")
    index = np.arange(50, dtype=np.int32)
    rest |= {"gather": index, "scatter": index} if both else {}
    rest[wild] = np.where(index == 3, -1, np.where(index == 9, 50, index)).astype(np.int32)
    ct = rng.standard_normal((50, 40), np.float32)

    def gradient(diff, ct):
        return jax.vjp(lambda d: run(d, rest, implementation), cast(diff, "float32"))[1](ct)[0]

    want = gradient(diff, jnp.asarray(ct))
    diff = {k: np.array(v) for k, v in diff.items()}
    diff["row_weights"][[3, 9]] = np.nan
    read = diff["lhs"] if wild == "scatter" else ct
    read[[3, 9]] = np.nan
    got = gradient(diff, jnp.asarray(ct))
    np.testing.assert_array_equal(got["rhs"], want["rhs"])
    for name in ("lhs", "row_weights"):
        np.testing.assert_array_equal(got[name], want[name], err_msg=name)
        np.testing.assert_array_equal(got[name][np.array([3, 9])], 0)


@pytest.mark.parametrize("form", ["plain", "all"])
def test_bitwise_repeat(implementation, rng, form):
    diff, rest = problem(rng, form)
    diff = cast(diff, "float32")
    f = jax.jit(jax.value_and_grad(lambda d: jnp.sum(jnp.sin(run(d, rest, implementation)))))
    first = jax.tree.map(np.asarray, f(diff))
    for _ in range(4):
        jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, np.asarray(b)), first, f(diff))


@pytest.mark.parametrize("variant", ["auto", "tall", "wide"])
def test_variants(rng, variant):
    if jax.default_backend() != "cpu":
        pytest.skip("variants of the CPU")
    diff, rest = problem(rng, rows=300, groups=4, outputs=150, depth=70)
    assert variant in {v.name for v in js.variants("grouped_matmul")}
    with js.config(variant=variant):
        assert_close(run(cast(diff, "float32"), rest, "cpu"), expected(diff, rest), "float32")


WILD = {
    "data": st.data(),
    "rows": st.integers(0, 40),
    "tokens": st.integers(0, 12),
    "depth": st.integers(0, 70),
    "outputs": st.integers(0, 70),
    "groups": st.integers(0, 6),
    "form": st.sampled_from(FORMS),
}


def wild_problem(data, rows, tokens, depth, outputs, groups, form):
    """Sizes that sum to anything, negative ones, indices out of range."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**31)))
    diff, rest = problem(rng, form, rows=max(rows, 4), groups=max(groups, 2))
    lhs_rows = tokens if "gather" in rest else rows
    diff["lhs"] = rng.standard_normal((lhs_rows, depth), np.float32)
    diff["rhs"] = rng.standard_normal((groups, depth, outputs), np.float32)
    rest["group_sizes"] = rng.integers(-2, 15, groups).astype(np.int32)
    for name in ("gather", "scatter"):
        if name in rest:
            rest[name] = rng.integers(-3, tokens + 3, rows).astype(np.int32)
    if "num_rows" in rest:
        rest["num_rows"] = tokens
    if "row_weights" in diff:
        diff["row_weights"] = rng.standard_normal(rows, np.float32)
    return diff, rest


@settings(max_examples=10)
@given(**WILD)
def test_any_shape(implementation, **drawn):
    diff, rest = wild_problem(**drawn)
    assert_close(
        run(cast(diff, "float32"), rest, implementation), expected(diff, rest), "float32", scale=8.0
    )


@settings(max_examples=6)
@given(**WILD)
def test_any_shape_grad(**drawn):
    if jax.default_backend() != "cpu":
        pytest.skip("compares the CPU kernel with the reference")
    diff, rest = wild_problem(**drawn)
    diff = cast(diff, "float32")
    got, want = (
        jax.jit(jax.grad(lambda d, name=name: jnp.sum(run(d, rest, name) ** 2)))(diff)
        for name in ("cpu", "reference")
    )
    for name in diff:
        assert_close(got[name], want[name], "float32", scale=8.0)


def test_explain_counts_rows(rng):
    diff, rest = problem(rng, "plain")
    told = js.explain(functools.partial(run, rest=rest, implementation=None), cast(diff, "float32"))
    assert told.calls[0].counts == [int(rest["group_sizes"].sum())]
    assert told.calls[0].n_tiles == 50
