"""top_experts against numpy: choice, weights, sums; ties, NaN, masks, gradients, transforms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxsparse as js
from jaxsparse.ops.top_experts.api import top_experts
from jaxsparse.reference.top_experts import top_experts as reference


def oracle(logits, top_k, *, mask=None, normalize=False):
    """In float64, one token after the other."""
    tokens, experts = logits.shape
    ids = np.full((tokens, top_k), -1)
    weights = np.zeros((tokens, top_k))
    sums = np.zeros(experts)
    for t in range(tokens):
        if mask is not None and not mask[t]:
            continue
        row = logits[t].astype(np.float64)
        p = np.exp(row - row.max())
        p /= p.sum()
        sums += p
        ids[t] = np.argsort(-row, kind="stable")[:top_k]
        weights[t] = p[ids[t]] / (p[ids[t]].sum() if normalize else 1)
    return ids, weights, sums


def check(got, want):
    np.testing.assert_array_equal(got.ids, want[0])
    np.testing.assert_allclose(got.weights, want[1], rtol=2e-6, atol=1e-7)
    np.testing.assert_allclose(got.sums, want[2], rtol=1e-5, atol=1e-6)
    assert [v.dtype for v in got] == [jnp.int32, jnp.float32, jnp.float32]


@given(
    data=st.data(),
    tokens=st.integers(0, 40),
    experts=st.integers(1, 150),
    masked=st.booleans(),
    normalize=st.booleans(),
)
def test_any_shape(implementation, data, tokens, experts, masked, normalize):
    top_k = data.draw(st.integers(1, experts))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**31)))
    # A few distinct values: many ties.
    logits = (rng.integers(-6, 7, (tokens, experts)) * 0.5).astype(np.float32)
    mask = rng.random(tokens) < 0.7 if masked else None
    given_mask = None if mask is None else jnp.asarray(mask)
    options = {"normalize": normalize, "implementation": implementation}
    got = top_experts(jnp.asarray(logits), top_k, mask=given_mask, **options)
    check(got, oracle(logits, top_k, mask=mask, normalize=normalize))


@pytest.mark.parametrize("experts", [32, 33, 64, 200, 256, 257, 512, 1000, 1024, 1025])
def test_many_experts(implementation, rng, experts):
    """Every width of the kernel, more than 32 choices, and more tokens than one round takes.

    The CUDA kernel takes 1024 experts; more are XLA's, for those who do not name it.
    """
    if implementation == "cuda" and experts > 1024:
        implementation = None
    logits = rng.standard_normal((70, experts)).astype(np.float32)
    for top_k in (1, 8, min(experts, 70)):
        options = {"normalize": True, "implementation": implementation}
        got = top_experts(jnp.asarray(logits), top_k, **options)
        check(got, oracle(logits, top_k, normalize=True))


def test_named_cuda_takes_1024_experts(rng):
    logits = jnp.asarray(rng.standard_normal((3, 1025)), jnp.float32)
    told = r"implementation='cuda' cannot run \(cuda: logits has 1025 experts; it takes up to 1024"
    with pytest.raises(ValueError, match=told):
        top_experts(logits, 2, implementation="cuda")
    both = top_experts(logits, 2, implementation=("cuda", "reference"))
    check(both, oracle(np.asarray(logits), 2))


def test_explain_lists_it(rng):
    told = js.explain(lambda v: top_experts(v, 2), jnp.zeros((5, 1025)))
    assert [(call.op, call.shapes) for call in told.calls] == [("top_experts", "float32[5, 1025]")]
    small = js.explain(lambda v: top_experts(v, 2), jnp.zeros((5, 7)))
    if jax.default_backend() == "gpu":
        assert told.calls[0].implementation == "reference"
        assert "1025 experts" in told.calls[0].against["the kernel"]
        assert small.calls[0].implementation == "cuda"
    assert "the kernel" not in small.calls[0].against


def test_many_tokens(implementation, rng):
    logits = rng.standard_normal((9000, 16)).astype(np.float32)
    check(top_experts(jnp.asarray(logits), 2, implementation=implementation), oracle(logits, 2))


def test_order_is_that_of_top_k(implementation):
    nan, inf = np.nan, np.inf
    rows = [
        [0.0, -0.0, 1.0, 1.0, -1.0],
        [-0.0, 0.0, -0.0, 0.0, 0.0],
        [-inf, 0.0, -inf, -3e38, 3e38],
        [nan, 1.0, inf, nan, -inf],
        [-inf] * 5,
    ]
    logits = jnp.asarray(rows, jnp.float32)
    got = top_experts(logits, 5, implementation=implementation)
    want = [[2, 3, 0, 1, 4], [1, 3, 4, 0, 2], [4, 1, 3, 0, 2], [0, 3, 2, 1, 4], [0, 1, 2, 3, 4]]
    np.testing.assert_array_equal(got.ids, want)
    if jax.default_backend() == "cpu":
        np.testing.assert_array_equal(got.ids, jax.lax.top_k(logits, 5)[1])
    softmax = np.asarray(jax.nn.softmax(logits, axis=-1))
    chosen = np.take_along_axis(softmax, np.asarray(got.ids), 1)
    np.testing.assert_allclose(got.weights, chosen, rtol=1e-6)
    assert np.isnan(np.asarray(got.weights)[3:]).all()
    negative = top_experts(jnp.asarray([[0.0, -nan, 2.0]]), 1, implementation=implementation)
    assert int(negative.ids[0, 0]) == 1


@pytest.mark.parametrize("normalize", [False, True])
def test_gradients(implementation, rng, normalize):
    logits = jnp.asarray(rng.standard_normal((6, 9)), jnp.float32)

    def ours(v):
        out = top_experts(v, 3, normalize=normalize, implementation=implementation)
        return jnp.sum(jnp.sin(out.weights * 3)) + jnp.sum(jnp.cos(out.sums))

    def plain(v):
        p = jax.nn.softmax(v, axis=-1)
        weights, _ = jax.lax.top_k(p, 3)
        if normalize:
            weights = weights / weights.sum(1, keepdims=True)
        return jnp.sum(jnp.sin(weights * 3)) + jnp.sum(jnp.cos(p.sum(0)))

    for order in (jax.grad, lambda f: jax.grad(lambda v: jnp.sum(jax.grad(f)(v) ** 2))):
        np.testing.assert_allclose(order(ours)(logits), order(plain)(logits), atol=2e-5)


def test_reference_takes_lists(rng):
    logits = rng.standard_normal((2, 5, 6)).astype(np.float32)
    ids, weights, sums = reference(jnp.asarray(logits), None, 2, True)
    for i in range(2):
        want = oracle(logits[i], 2, normalize=True)
        np.testing.assert_array_equal(ids[i], want[0])
        np.testing.assert_allclose(weights[i], want[1], rtol=2e-6)
        np.testing.assert_allclose(sums[i, 0], want[2], rtol=1e-5)
