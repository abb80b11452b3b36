"""grouped_matmul and route on the GPU: every variant, skewed groups, lists longer than one pass."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ops.grouped_matmul.oracle import grouped_matmul as oracle
from ops.grouped_matmul.oracle import route as route_oracle
from ops.op_suite import assert_close, cast, rounded

import jaxsparse as js
from jaxsparse.ffi import ffi_call

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("error")]

SKEWS = ("balanced", "one takes all", "many empty", "zipf", "past the end", "negative")


def sizes_of(skew, groups, rows):
    share = {
        "zipf": 1 / np.arange(1, groups + 1),
        "many empty": np.arange(groups) % 4 == 0,
        "one takes all": np.arange(groups) == groups // 2,
    }.get(skew, np.ones(groups))
    sizes = (rows * share / share.sum()).astype(np.int32)
    if skew == "past the end":
        sizes[-2] += rows
    if skew == "negative":
        sizes[1] = -7
    return sizes


def problem(rng, skew="balanced", *, rows=900, depth=136, outputs=264, groups=6, tokens=300):
    diff = {
        "lhs": rng.standard_normal((tokens, depth), np.float32),
        "rhs": rng.standard_normal((groups, depth, outputs), np.float32) / np.float32(depth**0.5),
        "row_weights": rng.random(rows, np.float32),
    }
    rest = {
        "group_sizes": sizes_of(skew, groups, rows),
        "gather": rng.integers(-3, tokens + 3, rows).astype(np.int32),
        "scatter": rng.integers(-3, tokens + 3, rows).astype(np.int32),
        "num_rows": tokens,
    }
    return diff, rest


def run(diff, rest, **options):
    rest = {k: v if k == "num_rows" else jnp.asarray(v) for k, v in rest.items()}
    sizes = rest.pop("group_sizes")
    weights = diff.get("row_weights")
    return js.grouped_matmul(
        diff["lhs"],
        diff["rhs"],
        sizes,
        row_weights=weights,
        implementation="cuda",
        **rest,
        **options,
    )


def expected(diff, rest):
    rest = dict(rest)
    sizes = rest.pop("group_sizes")
    weights = diff.get("row_weights")
    return oracle(diff["lhs"], diff["rhs"], sizes, row_weights=weights, **rest)


@pytest.mark.parametrize("variant", ["direct", "n256", "n128"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_variants(rng, variant, dtype):
    assert variant in {v.name for v in js.variants("grouped_matmul") if v.platform == "cuda"}
    diff, rest = problem(rng)
    with js.config(variant=variant):
        assert_close(run(cast(diff, dtype), rest), expected(rounded(diff, dtype), rest), dtype)


@pytest.mark.parametrize("skew", SKEWS)
def test_skew(rng, skew):
    diff, rest = problem(rng, skew)
    assert_close(
        run(cast(diff, "bfloat16"), rest), expected(rounded(diff, "bfloat16"), rest), "bfloat16"
    )


@pytest.mark.parametrize("skew", SKEWS)
@pytest.mark.parametrize("fused", [False, True])
def test_gradients(rng, skew, fused):
    diff, rest = problem(rng, skew)
    if not fused:
        diff.pop("row_weights")
        rest = {"group_sizes": rest["group_sizes"]}
        diff["lhs"] = rng.standard_normal((900, 136), np.float32)
    half = cast(diff, "bfloat16")

    def loss(d, implementation):
        options = {k: v for k, v in rest.items() if k != "group_sizes"}
        options = {k: v if k == "num_rows" else jnp.asarray(v) for k, v in options.items()}
        out = js.grouped_matmul(
            d["lhs"],
            d["rhs"],
            jnp.asarray(rest["group_sizes"]),
            row_weights=d.get("row_weights"),
            implementation=implementation,
            preferred_element_type=jnp.float32,
            precision="highest",
            **options,
        )
        return jnp.sum(jnp.sin(out))

    got = jax.grad(lambda d: loss(d, "cuda"))(half)
    want = jax.grad(lambda d: loss(d, "reference"))(cast(rounded(half, "float32"), "float32"))
    for name in diff:
        assert got[name].dtype == half[name].dtype
        assert_close(got[name], want[name], "bfloat16", scale=2.0)


@pytest.mark.parametrize("skew", SKEWS)
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_many_contiguous_rows_a_group(rng, skew, fused, dtype):
    """Several tiles of rows a group; the gradient multiplies by the weights in the other order."""
    rows, tokens = 1300, 600
    diff, rest = problem(rng, skew, rows=rows, depth=328, outputs=392, groups=4, tokens=tokens)
    del rest["gather"]
    diff["lhs"] = rng.standard_normal((rows, 328), np.float32)
    if not fused:
        diff.pop("row_weights")
        rest = {"group_sizes": rest["group_sizes"]}
    half, known = cast(diff, dtype), rounded(diff, dtype)
    assert_close(run(half, rest), expected(known, rest), dtype)
    if fused:
        return
    ct = jnp.asarray(rng.standard_normal((rows, 392), np.float32))
    sizes = jnp.asarray(rest["group_sizes"])

    def loss(lhs, rhs, implementation):
        out = js.grouped_matmul(lhs, rhs, sizes, implementation=implementation)
        return jnp.sum(out.astype(jnp.float32) * ct)

    got = jax.grad(loss)(half["lhs"], half["rhs"], "cuda")
    want = jax.grad(loss)(*(jnp.asarray(known[k]) for k in ("lhs", "rhs")), "reference")
    assert_close(got, want, dtype, scale=2.0)


@pytest.mark.parametrize("groups", [191, 192, 193, 400])
@pytest.mark.parametrize("skew", ["past the end", "negative"])
def test_weights_gradient_of_many_groups(rng, groups, skew):
    """Up to 192 groups each block sums the sizes up itself, beyond a kernel before does."""
    rows, depth, outputs = 5 * groups, 64, 128
    lhs = rng.standard_normal((rows, depth), np.float32)
    ct = rng.standard_normal((rows, outputs), np.float32)
    sizes = sizes_of(skew, groups, rows)
    half = cast({"lhs": lhs, "ct": ct}, "bfloat16")
    known = rounded({"lhs": lhs, "ct": ct}, "bfloat16")
    rhs = jnp.zeros((groups, depth, outputs), jnp.bfloat16)

    def loss(rhs):
        out = js.grouped_matmul(half["lhs"], rhs, jnp.asarray(sizes), implementation="cuda")
        return jnp.sum(out.astype(jnp.float32) * half["ct"].astype(jnp.float32))

    ends = np.minimum(np.maximum(sizes, 0).cumsum(), rows)
    starts = np.append(0, ends[:-1])
    x, g = (np.asarray(known[k], np.float32) for k in ("lhs", "ct"))
    want = np.stack([x[a:b].T @ g[a:b] for a, b in zip(starts, ends, strict=True)])
    assert_close(jax.grad(loss)(rhs), want, "bfloat16", scale=2.0)


@pytest.mark.parametrize("out_of_range", ["gather", "scatter"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_of_rows_that_do_not_count_are_not_read(rng, out_of_range, dtype, value):
    """Owned rows with an index out of range; float32 runs on CUDA cores, the others on tensor
    cores.
    """
    diff, rest = problem(rng)
    other = "scatter" if out_of_range == "gather" else "gather"
    rest[other] = np.clip(rest[other], 0, 299)
    wild = (rest[out_of_range] < 0) | (rest[out_of_range] >= 300)
    ct = jnp.asarray(rng.standard_normal((300, 264), np.float32))

    def gradient(weight):
        weights = np.where(wild, np.float32(weight), diff["row_weights"])
        half = cast({**diff, "row_weights": weights}, dtype)
        return jax.grad(lambda d: jnp.sum(run(d, rest).astype(jnp.float32) * ct))(half)

    assert wild.sum() > 5
    for got, want in zip(
        jax.tree.leaves(gradient(value)), jax.tree.leaves(gradient(0.0)), strict=True
    ):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("size", ["rows", "depth", "outputs", "groups", "tokens"])
def test_gated_handler_takes_nothing(size):
    n = {"rows": 16, "depth": 8, "outputs": 24, "groups": 2, "tokens": 4, size: 0}
    lhs, w = (n["tokens"], n["depth"]), (n["groups"], n["depth"], n["outputs"])
    operands = [jnp.ones(shape, jnp.bfloat16) for shape in (lhs, w, w)]
    sizes, gather = jnp.full(n["groups"], 4, jnp.int32), jnp.zeros(n["rows"], jnp.int32)
    results = [((n["rows"], n["outputs"]), jnp.bfloat16), ((1 << 20,), np.uint8)]
    call = lambda: ffi_call(  # noqa: E731
        "jaxsparse_grouped_gated", results, *operands, sizes, gather, sorted_rows=n["rows"]
    )[0]
    got = jax.jit(call)()
    assert got.shape == (n["rows"], n["outputs"])
    np.testing.assert_array_equal(got, 0)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(("row_tiles", "column_tiles"), [(4, 33), (4, 35), (6, 33), (1, 199)])
def test_last_round(rng, fused, row_tiles, column_tiles):
    """More tiles of 128 x 256 than multiprocessors: a short last round is cut into halves."""
    rows, outputs = 128 * row_tiles - 10, 256 * column_tiles - 120
    diff, rest = problem(rng, rows=rows, depth=40, outputs=outputs, groups=1, tokens=80)
    if not fused:
        diff.pop("row_weights")
        diff["lhs"] = rng.standard_normal((rows, 40), np.float32)
        rest = {"group_sizes": rest["group_sizes"]}
    with js.config(variant="n256"):
        got = run(cast(diff, "bfloat16"), rest)
    assert_close(got, expected(rounded(diff, "bfloat16"), rest), "bfloat16")


def test_float32_in_full(rng):
    """Precision "highest" multiplies float32 in float32."""
    diff, rest = problem(rng, depth=512)
    got = run(cast(diff, "float32"), rest, precision="highest")
    want = expected(diff, rest)
    error = np.abs(np.asarray(got, np.float64) - want).max()
    assert error < 2e-5 * np.abs(want).max()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("other", [7, 11])
def test_many_rows_of_one_target(rng, dtype, other):
    """More sorted rows than the combine keeps slots for, of one target, and of two in turn."""
    diff, rest = problem(rng)
    rest["scatter"][100:800:2], rest["scatter"][101:800:2] = 7, other
    want = expected(rounded(diff, dtype), rest)
    assert_close(run(cast(diff, dtype), rest), want, dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_few_owned_rows(rng, dtype):
    """Most sorted rows, and in the end all, belong to no group: nothing of them is summed up."""
    diff, rest = problem(rng)
    for owned in (130, 0):
        rest["group_sizes"] = np.asarray([owned, 0, 0, 0, 0, 0], np.int32)
        got = run(cast(diff, dtype), rest)
        assert_close(got, expected(rounded(diff, dtype), rest), dtype)
        assert (not owned) == (not np.asarray(got).any())


def test_temporary_memory():
    """At most 1.2 times the inputs and outputs."""
    lhs = jax.ShapeDtypeStruct((2048, 768), jnp.bfloat16)
    rhs = jax.ShapeDtypeStruct((64, 768, 3072), jnp.bfloat16)
    rows = jax.ShapeDtypeStruct((4096,), jnp.int32)
    sizes = jax.ShapeDtypeStruct((64,), jnp.int32)
    f = jax.jit(
        lambda x, w, s, i: js.grouped_matmul(x, w, s, gather=i, scatter=i, implementation="cuda")
    )
    memory = f.lower(lhs, rhs, sizes, rows).compile().memory_analysis()
    known = memory.argument_size_in_bytes + memory.output_size_in_bytes
    assert memory.temp_size_in_bytes <= 1.2 * known


@pytest.mark.parametrize(
    ("tokens", "top_k", "experts"),
    [(50_000, 4, 128), (3000, 2, 1023), (3000, 2, 1024), (2000, 3, 70_000), (700, 1, 2**24)],
)
def test_route(rng, tokens, top_k, experts):
    ids = rng.integers(-2, experts + 2, (tokens, top_k)).astype(np.int32)
    got = js.route(jnp.asarray(ids), experts, implementation="cuda")
    order, sizes = route_oracle(ids, experts)
    np.testing.assert_array_equal(got.order, order)
    np.testing.assert_array_equal(got.gather, order // top_k)
    np.testing.assert_array_equal(got.group_sizes, sizes)
