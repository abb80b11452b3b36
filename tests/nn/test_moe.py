"""The MoE layers against a loop over tokens and experts, and against each other; MaskedDense
against flax's own layers.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx
from jax.sharding import PartitionSpec as P
from ops.op_suite import assert_close

import jaxsparse as js
from jaxsparse import nn

D, HIDDEN, EXPERTS = 12, 20, 5

IMPLEMENTATIONS = [None, "reference"] + ["cpu"] * (jax.default_backend() == "cpu")


def serial(params, x, *, top_k, activation="swiglu", normalize=None, mask=None):
    """Every token through its experts, one by one, in float64."""
    p = {k: np.asarray(v, np.float64) for k, v in params.items()}
    tokens = np.asarray(x, np.float64).reshape(-1, D)
    logits = tokens @ p["router"]
    probabilities = np.exp(logits - logits.max(1, keepdims=True))
    probabilities /= probabilities.sum(1, keepdims=True)
    out = np.zeros_like(tokens)
    for t, token in enumerate(tokens):
        if mask is not None and not mask.reshape(-1)[t]:
            continue
        chosen = np.argsort(-probabilities[t], kind="stable")[:top_k]
        weights = probabilities[t, chosen]
        if normalize if normalize is not None else top_k > 1:
            weights = weights / weights.sum()
        for e, weight in zip(chosen, weights, strict=True):
            out[t] += weight * expert(p, token, e, activation)
    return out.reshape(np.shape(x))


def expert(p, token, e, activation):
    h = token @ p["up"][e]
    if activation == "relu":
        return np.maximum(h, 0) @ p["down"][e]
    z = token @ p["gate"][e]
    return (z / (1 + np.exp(-z)) * h) @ p["down"][e]


def make(rng, **options):
    x = jnp.asarray(rng.standard_normal((3, 7, D), np.float32))
    layer = nn.linen.MoE(EXPERTS, HIDDEN, **options)
    return layer, layer.init(jax.random.key(0), x), x


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("top_k", [1, 2, 5])
@pytest.mark.parametrize("activation", ["swiglu", "relu"])
def test_values(rng, implementation, top_k, activation):
    layer, variables, x = make(
        rng, top_k=top_k, activation=activation, implementation=implementation
    )
    got, loss = jax.jit(layer.apply)(variables, x)
    assert_close(got, serial(variables["params"], x, top_k=top_k, activation=activation), "float32")
    assert 0.5 < float(loss) <= EXPERTS
    shapes = {k: v.shape for k, v in variables["params"].items()}
    want = {"router": (D, EXPERTS), "up": (EXPERTS, D, HIDDEN), "down": (EXPERTS, HIDDEN, D)}
    assert shapes == (want | {"gate": (EXPERTS, D, HIDDEN)} if activation == "swiglu" else want)


def test_token_mask_and_nan(rng):
    layer, variables, x = make(rng, top_k=2)
    mask = js.lengths_mask(jnp.asarray([7, 0, 4]), 7)
    want = serial(variables["params"], x, top_k=2, mask=np.asarray(mask))
    x = jnp.where(mask[..., None], x, jnp.nan)

    def loss(v, x):
        y, balance = layer.apply(v, x, mask)
        return jnp.sum(y**2) + balance, y

    (_, got), gradients = jax.value_and_grad(loss, (0, 1), has_aux=True)(variables, x)
    assert_close(got, want, "float32")
    assert all(np.isfinite(np.asarray(g)).all() for g in jax.tree.leaves(gradients))


def test_gradients_match_the_dense_mixture(rng):
    layer, variables, x = make(rng, top_k=2)

    def dense(params, x):
        tokens = x.reshape(-1, D)
        probabilities = jax.nn.softmax(tokens @ params["router"])
        weights, ids = jax.lax.top_k(probabilities, 2)
        weights = weights / weights.sum(1, keepdims=True)
        full = jnp.zeros_like(probabilities).at[jnp.arange(21)[:, None], ids].set(weights)
        h = jnp.einsum("td,edh->eth", tokens, params["up"])
        h = jax.nn.silu(jnp.einsum("td,edh->eth", tokens, params["gate"])) * h
        return jnp.einsum("eth,ehd,te->td", h, params["down"], full).reshape(x.shape)

    got = jax.grad(lambda p, x: jnp.sum(jnp.sin(layer.apply({"params": p}, x)[0])), (0, 1))
    want = jax.grad(lambda p, x: jnp.sum(jnp.sin(dense(p, x))), (0, 1))
    args = (variables["params"], x)
    for a, b in zip(jax.tree.leaves(got(*args)), jax.tree.leaves(want(*args)), strict=True):
        assert_close(a, b, "float32", scale=4.0)


def test_expert_choice(rng):
    layer, variables, x = make(rng, top_k=2, routing="expert_choice")
    got, loss = layer.apply(variables, x)
    p = {k: np.asarray(v, np.float64) for k, v in variables["params"].items()}
    tokens = np.asarray(x, np.float64).reshape(-1, D)
    logits = np.exp(tokens @ p["router"])
    probabilities = logits / logits.sum(1, keepdims=True)
    capacity = -(-len(tokens) * 2 // EXPERTS)
    want = np.zeros_like(tokens)
    for e in range(EXPERTS):
        for t in np.argsort(-probabilities[:, e])[:capacity]:
            want[t] += probabilities[t, e] * expert(p, tokens[t], e, "swiglu")
    assert_close(got, want.reshape(x.shape), "float32")
    assert float(loss) == 0
    masked, _ = layer.apply(variables, x, jnp.zeros(x.shape[:2], bool))
    np.testing.assert_array_equal(masked, 0)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("activation", ["swiglu", "relu"])
def test_expert_choice_of_the_tokens_that_count(rng, implementation, activation):
    """Padding and where it lies change nothing, NaN in it reaches nothing, and no row is wild."""
    options = {"top_k": 2, "routing": "expert_choice", "activation": activation}
    layer, variables, x = make(rng, implementation=implementation, **options)
    mask = np.zeros((3, 7), bool)
    mask[0, 1:4] = mask[2, 3:] = True
    padded = jnp.where(mask[..., None], x, jnp.nan)

    def loss(v, x, mask):
        y = layer.apply(v, x, mask)[0]
        return jnp.sum(jnp.sin(y)), y

    assert layer.apply(variables, x[:, :0], mask[:, :0])[0].shape == (3, 0, D)
    with js.checked():
        (_, got), found = jax.value_and_grad(loss, (0, 1), has_aux=True)(variables, padded, mask)
    (_, want), known = jax.value_and_grad(loss, (0, 1), has_aux=True)(variables, x[mask], None)
    assert_close(got[mask], want, "float32")
    np.testing.assert_array_equal(got[~mask], 0)
    assert_close(found[1][mask], known[1], "float32")
    np.testing.assert_array_equal(found[1][~mask], 0)
    for a, b in zip(jax.tree.leaves(found[0]), jax.tree.leaves(known[0]), strict=True):
        assert_close(a, b, "float32", scale=2.0)


@pytest.mark.parametrize("integer", [np.int64, np.int32])
def test_numbers_of_numpy(rng, integer):
    layer, variables, x = make(rng, top_k=2)
    other = nn.linen.MoE(integer(EXPERTS), integer(HIDDEN), top_k=integer(2))
    np.testing.assert_array_equal(other.apply(variables, x)[0], layer.apply(variables, x)[0])
    sizes = (D, integer(EXPERTS), integer(HIDDEN))
    module = nn.nnx.MoE(*sizes, top_k=integer(2), rngs=nnx.Rngs(0))
    assert type(module.options.top_k) is int
    assert module(x)[0].shape == x.shape


# Not in the op suite: a layer, whose router and experts are several ops.
@pytest.mark.skipif(len(jax.devices()) < 4, reason="needs four devices")
@pytest.mark.parametrize(
    "options", [{"top_k": 2}, {"activation": "relu"}, {"top_k": 2, "routing": "expert_choice"}]
)
def test_shard_map(rng, options):
    """Tokens over four devices: values and gradients are those of the parts."""
    layer, variables, _ = make(rng, **options)
    x = jnp.asarray(rng.standard_normal((8, 7, D), np.float32))
    auto = (jax.sharding.AxisType.Auto,)
    mesh = jax.make_mesh((4,), ("data",), auto, devices=jax.devices()[:4])
    one = lambda v, x: layer.apply(v, x)[0]  # noqa: E731
    spread = jax.shard_map(one, mesh=mesh, in_specs=(P(), P("data")), out_specs=P("data"))
    parts = lambda v, x: jnp.concatenate([one(v, x[i : i + 2]) for i in (0, 2, 4, 6)])  # noqa: E731

    def value_and_gradient(f):
        def loss(v, x):
            y = f(v, x)
            return jnp.sum(jnp.sin(y)), y

        return jax.jit(jax.grad(loss, has_aux=True))(variables, x)

    (got, y), (want, y_want) = map(value_and_gradient, (spread, parts))
    assert_close(y, y_want, "float32")
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert_close(a, b, "float32", scale=2.0)


def test_load_balance_loss_is_one_when_balanced(rng):
    layer, variables, x = make(rng, top_k=EXPERTS)
    assert np.isclose(float(layer.apply(variables, x)[1]), 1.0, atol=1e-5)
    skewed = {"params": {**variables["params"], "router": jnp.zeros((D, EXPERTS)).at[:, 2].set(50)}}
    layer = nn.linen.MoE(EXPERTS, HIDDEN)
    assert np.isclose(float(layer.apply(skewed, jnp.abs(x))[1]), EXPERTS, atol=1e-3)


def test_nnx_equals_linen(rng):
    layer, variables, x = make(rng, top_k=2)
    other = nn.nnx.MoE(D, EXPERTS, HIDDEN, top_k=2, rngs=nnx.Rngs(0))
    for name, value in variables["params"].items():
        assert getattr(other, name).shape == value.shape
        getattr(other, name)[...] = value
    (a, la), (b, lb) = layer.apply(variables, x), nnx.jit(lambda m, x: m(x))(other, x)
    assert_close(a, b, "float32")  # one runs eagerly, the other jitted: XLA fuses them differently
    assert_close(la, lb, "float32")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_experts": 0}, "num_experts=0"),
        ({"top_k": 6}, "top_k=6"),
        ({"activation": "tanh"}, "activation='tanh'"),
        ({"routing": "hash"}, "routing='hash'"),
        ({"normalize": "x"}, "normalize='x'"),
        ({"normalize": True, "routing": "expert_choice"}, "normalize=True"),
    ],
)
def test_bad_options_are_named(rng, options, words):
    given = {"num_experts": EXPERTS, "hidden": HIDDEN, **options}
    with pytest.raises(ValueError, match=words):
        nn.linen.MoE(**given).init(jax.random.key(0), jnp.ones((2, D)))
    with pytest.raises(ValueError, match=words):
        nn.nnx.MoE(D, **given, rngs=nnx.Rngs(0))


@pytest.mark.parametrize("name", ["dtype", "param_dtype"])
def test_what_is_not_a_dtype_is_named(rng, name):
    with pytest.raises(TypeError, match=f"^{name}='foo' is not a dtype"):
        make(rng, **{name: "foo"})
    with pytest.raises(TypeError, match=f"^{name}='foo' is not a dtype"):
        nn.nnx.MoE(D, EXPERTS, HIDDEN, rngs=nnx.Rngs(0), **{name: "foo"})


def test_bad_calls_are_named(rng):
    layer, variables, x = make(rng)
    mask = jnp.ones((3, 7), bool)
    other = nn.nnx.MoE(D, EXPERTS, HIDDEN, rngs=nnx.Rngs(0))
    for call in (functools.partial(layer.apply, variables), other):
        with pytest.raises(
            ValueError, match=r"mask has shape .* the tokens of these inputs are \(3, 7\)"
        ):
            call(x, mask[:, 0])
        with pytest.raises(TypeError, match="mask has dtype"):
            call(x, jnp.ones((3, 7)))
        for given in ("x", mask.tolist(), js.tile_index(mask[None])):
            name = type(given).__name__
            with pytest.raises(TypeError, match=f"^mask must be an array, not {name}"):
                call(x, given)
        with pytest.raises(TypeError, match="inputs must be an array, not list"):
            call(x.tolist())
        with pytest.raises(ValueError, match="inputs has shape"):
            call(x[0, 0, 0])


def test_bad_calls_of_masked_dense_are_named(rng):
    x, mask = jnp.asarray(rng.standard_normal((3, 7, D), np.float32)), jnp.ones((3, 7), bool)
    layer = nn.linen.MaskedDense(HIDDEN)
    variables = layer.init(jax.random.key(0), x)
    other = nn.nnx.MaskedDense(D, HIDDEN, rngs=nnx.Rngs(0))
    for call in (functools.partial(layer.apply, variables), other):
        with pytest.raises(TypeError, match="inputs must be an array, not list"):
            call(x.tolist(), mask)
        with pytest.raises(TypeError, match="mask must be an array, not list"):
            call(x, mask.tolist())
        with pytest.raises(ValueError, match="mask has shape"):
            call(x, mask[:, :-1])
        with pytest.raises(TypeError, match="base must be an array, not float"):
            call(x, mask, base=0.0)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_masked_dense_takes_flax_checkpoints(rng, dtype):
    x = jnp.asarray(rng.standard_normal((3, 7, D), np.float32)).astype(dtype)
    mask = js.lengths_mask(jnp.asarray([7, 0, 4]), 7)
    flax = linen.Dense(HIDDEN, dtype=dtype)
    variables = flax.init(jax.random.key(0), x)
    want = jnp.where(mask[..., None], jax.nn.relu(flax.apply(variables, x)), jnp.zeros((), dtype))
    ours = nn.linen.MaskedDense(HIDDEN, dtype=dtype, activation="relu")
    assert jax.tree.map(jnp.shape, ours.init(jax.random.key(0), x, mask)) == jax.tree.map(
        jnp.shape, variables
    )
    assert_close(ours.apply(variables, x, mask), want, dtype.dtype.name)
    other = nn.nnx.MaskedDense(D, HIDDEN, dtype=dtype, activation="relu", rngs=nnx.Rngs(0))
    other.kernel[...] = variables["params"]["kernel"]
    other.bias[...] = variables["params"]["bias"]
    assert_close(other(x, mask), want, dtype.dtype.name)
    wide = {"dtype": dtype, "preferred_element_type": jnp.float32, "use_bias": False}
    other = nn.nnx.MaskedDense(D, HIDDEN, **wide, rngs=nnx.Rngs(0))
    assert other(x).dtype == other(x, mask).dtype == jnp.float32
    full = jnp.ones_like(mask)
    assert_close(ours.apply(variables, x, full), ours.apply(variables, x), dtype.dtype.name)
