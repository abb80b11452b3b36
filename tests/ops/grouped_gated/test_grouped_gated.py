"""grouped_gated against two grouped products and an activation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ops.grouped_matmul.oracle import grouped_matmul as oracle
from ops.op_suite import assert_close, rounded

import jaxsparse as js
from jaxsparse.ops.grouped_gated.api import grouped_gated


def problem(rng, dtype, *, rows=150, depth=72, outputs=136, groups=5, tokens=60):
    arrays = {
        "lhs": rng.standard_normal((tokens, depth), np.float32),
        "gate": rng.standard_normal((groups, depth, outputs), np.float32) / np.float32(depth**0.5),
        "up": rng.standard_normal((groups, depth, outputs), np.float32) / np.float32(depth**0.5),
    }
    sizes = rng.multinomial(rows - 9, np.ones(groups) / groups).astype(np.int32)
    gather = rng.integers(-2, tokens + 2, rows).astype(np.int32)
    arrays = {k: jnp.asarray(v).astype(dtype) for k, v in arrays.items()}
    return arrays, jnp.asarray(sizes), jnp.asarray(gather)


def call(arrays, sizes, gather, implementation):
    operands = (arrays[k] for k in ("lhs", "gate", "up"))
    return grouped_gated(*operands, sizes, gather=gather, implementation=implementation)


def expected(arrays, sizes, gather):
    exact = rounded(arrays, "float32")
    gate, up = (oracle(exact["lhs"], exact[k], sizes, gather=gather) for k in ("gate", "up"))
    return gate / (1 + np.exp(-gate)) * up


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("gathers", [True, False])
def test_values(implementation, rng, dtype, gathers):
    arrays, sizes, gather = problem(rng, dtype, tokens=60 if gathers else 150)
    gather = gather if gathers else None
    got = call(arrays, sizes, gather, implementation)
    assert got.dtype == dtype
    assert_close(got, expected(arrays, sizes, gather), dtype, scale=2.0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_explain_says_what_ran(rng, dtype):
    """One pass, counted; or two products, and why."""
    arrays, sizes, gather = problem(rng, dtype)
    told = js.explain(lambda a: call(a, sizes, gather, None), arrays)
    first, *rest = told.calls
    owned = np.asarray(gather)[: int(sizes.sum())]
    counted = int(((owned >= 0) & (owned < len(arrays["lhs"]))).sum())
    assert first.op == "grouped_gated"
    assert ("one pass" in first.against) == (first.implementation != "cuda" or bool(rest))
    if rest:
        assert [c.op for c in rest] == ["grouped_matmul"] * 2
        assert [c.counts for c in rest] == [[counted]] * 2
    else:
        assert first.counts == [counted]
    if dtype == "float32":
        assert first.against["one pass"] == "it takes 16-bit operands"
    elif jax.default_backend() == "gpu":
        assert not rest


def test_too_many_sorted_rows_are_named(rng):
    arrays, sizes, _ = problem(rng, "bfloat16")
    rows = jax.ShapeDtypeStruct((2**31 - 1023,), jnp.int32)
    with pytest.raises(ValueError, match="2147482625 sorted rows"):
        jax.eval_shape(lambda gather: call(arrays, sizes, gather, None), rows)


@pytest.mark.gpu
def test_a_variant_reaches_the_products(rng):
    arrays, sizes, gather = problem(rng, "bfloat16")
    with js.config(variant="n128"):
        told = js.explain(lambda a: call(a, sizes, gather, None), arrays)
    assert "js.config" in told.calls[0].against["one pass"]
    assert [c.variant(c.counts[0]) for c in told.calls[1:]] == ["n128", "n128"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("wrong", ["gather", "group_sizes"])
def test_checked_names_bad_rows(implementation, rng, dtype, wrong):
    arrays, sizes, gather = problem(rng, dtype)
    if wrong == "group_sizes":
        sizes, gather = sizes.at[1].set(999), jnp.clip(gather, 0, 59)
    with pytest.raises(ValueError, match=wrong), js.checked():
        call(arrays, sizes, gather, implementation)
    with js.checked():
        call(arrays, sizes.at[1].set(0), jnp.clip(gather, 0, 59), implementation)
