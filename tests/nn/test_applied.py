"""`PrunedModel.apply` and `js.nn.pruned`: flax's own models on their plans."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx

import jaxsparse as js

RNG = np.random.default_rng(0)
X = jnp.asarray(RNG.standard_normal((2, 5, 6, 4)), jnp.float32)
EXACT = {"precision": "highest"}  # a GPU's default is TF32


class Block(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.relu(linen.Conv(8, (3, 3), name="conv", feature_group_count=2, **EXACT)(x))


class Linen(linen.Module):
    width: int = 6

    def setup(self):
        self.block, self.head = Block(), linen.Dense(self.width, **EXACT)

    def __call__(self, x):
        return self.head(self.features(x))

    def features(self, x):
        return self.block(x).mean((1, 2))


class Nnx(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        conv = nnx.Conv(4, 8, (3, 3), feature_group_count=2, **EXACT, rngs=rngs)
        self.layers = nnx.List([conv])
        self.head = nnx.Linear(8, 6, **EXACT, rngs=rngs)

    def __call__(self, x):
        return self.head(nnx.relu(self.layers[0](x)).mean((1, 2)))


@pytest.fixture(scope="module")
def params():
    return Linen().init(jax.random.key(1), X)


@pytest.fixture(scope="module")
def plans(params):
    groups = {"params/block/conv/kernel": 2}
    return js.prune_model(params, 0.6, smallest=1, groups=groups)


def planned_nnx():
    model = Nnx()
    state = nnx.state(model, nnx.Param)
    return model, js.prune_model(state, 0.6, smallest=1, groups={"layers/0/kernel": 2})


def calls(fn, *args):
    """The ops that `fn` calls, by name."""
    return sorted({call.op for call in js.explain(fn, *args).calls})


PRUNED = ["pruned_conv", "pruned_matmul"]


def test_linen_equals_masked_dense(params, plans):
    model, want = plans.apply(Linen()), Linen().apply(plans.masked(params), X)
    assert isinstance(model, Linen)
    assert model.width == 6
    assert calls(model.apply, params, X) == PRUNED
    np.testing.assert_allclose(jax.jit(model.apply)(params, X), want, atol=2e-5)
    features = model.apply(params, X, method="features")
    want_features = Linen().apply(plans.masked(params), X, method="features")
    np.testing.assert_allclose(features, want_features, atol=2e-5)
    assert calls(Linen().apply, params, X) == []
    shapes = jax.tree.map(jnp.shape, model.init(jax.random.key(0), X))
    assert shapes == jax.tree.map(jnp.shape, params)


def test_linen_as_a_part_of_a_model(params, plans):
    whole = linen.Sequential([plans.apply(Linen()), linen.relu])
    variables = {"params": {"layers_0": params["params"]}}
    want = jax.nn.relu(Linen().apply(plans.masked(params), X))
    assert calls(whole.apply, variables, X) == PRUNED
    np.testing.assert_allclose(whole.apply(variables, X), want, atol=2e-5)


def test_linen_of_one_layer():
    dense = linen.Dense(6, **EXACT)
    params = dense.init(jax.random.key(0), X)
    plans = js.prune_model(params, 0.5, smallest=1)
    want = dense.apply(plans.masked(params), X)
    np.testing.assert_allclose(plans.apply(dense).apply(params, X), want, atol=2e-5)


def test_nnx_equals_masked_dense():
    dense, plans = planned_nnx()
    model = plans.apply(dense)
    assert calls(model, X) == PRUNED
    assert calls(dense, X) == []
    masked = nnx.clone(dense)
    nnx.update(masked, plans.masked(nnx.state(dense, nnx.Param)))
    np.testing.assert_allclose(nnx.jit(lambda m, x: m(x))(model, X), masked(X), atol=2e-5)
    jax.tree.map(np.testing.assert_array_equal, nnx.state(model), nnx.state(masked))


@pytest.mark.parametrize("how", ["plans", "applied"])
def test_linen_trains_kept_entries_only(params, plans, how):
    start = plans.masked(params)
    target = jnp.ones((2, 6))
    optimizer = optax.sgd(0.1)

    @jax.jit
    def step(params, state):
        def loss(p):
            return jnp.mean((Linen().apply(p, X) - target) ** 2)

        value, gradient = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(params, updates), state, value

    state = optimizer.init(start)
    dense, _, _ = step(start, state)  # the jitted function is traced again inside of the block
    assert any(np.count_nonzero(a) != np.count_nonzero(b) for a, b in kernels(dense, start))
    with js.nn.pruned(plans if how == "plans" else plans.apply(Linen())):
        assert calls(step, start, state) == PRUNED
        after, state, first = step(start, state)
        after, _, last = step(after, state)
    assert last < first
    for new, old in kernels(after, start):
        np.testing.assert_array_equal(new == 0, old == 0)
        assert not np.array_equal(new, old)


def kernels(*trees):
    leaves = [
        [leaf for leaf in jax.tree.leaves(tree) if np.ndim(leaf) > 1 and leaf.size]
        for tree in trees
    ]
    return list(zip(*leaves, strict=True))


@pytest.mark.parametrize("how", ["plans", "applied"])
def test_nnx_trains_kept_entries_only(how):
    module, plans = planned_nnx()
    if how == "applied":
        model, context = plans.apply(module), None
        context = js.nn.pruned(model)
    else:
        nnx.update(module, plans.masked(nnx.state(module, nnx.Param)))
        model, context = module, js.nn.pruned(plans, module)
    start = jax.tree.map(np.asarray, nnx.to_pure_dict(nnx.state(model, nnx.Param)))
    optimizer = nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer):
        loss, gradient = nnx.value_and_grad(lambda m: jnp.mean((m(X) - 1) ** 2))(model)
        optimizer.update(model, gradient)
        return loss

    with context:
        assert calls(model, X) == PRUNED
        first, last = step(model, optimizer), step(model, optimizer)
    assert last < first
    after = nnx.to_pure_dict(nnx.state(model, nnx.Param))
    for new, old in kernels(after, start):
        np.testing.assert_array_equal(np.asarray(new) == 0, old == 0)
        assert not np.array_equal(new, old)
    assert calls(model, X) == (PRUNED if how == "applied" else [])
    dense = Nnx()
    nnx.update(dense, nnx.state(model))
    np.testing.assert_allclose(model(X), dense(X), atol=2e-5)  # the values after training


def test_what_does_not_fit_is_named(params, plans):
    with pytest.raises(TypeError, match="module must be a flax"):
        plans.apply(3)
    with pytest.raises(ValueError, match="has no 'params/block/conv/kernel'"):
        plans.apply(Linen()).apply({"params": {"other": params["params"]}}, X)
    with pytest.raises(ValueError, match="is bound to parameters"):
        plans.apply(Linen().bind(params))
    transposed = linen.ConvTranspose(8, (3, 3))
    variables = transposed.init(jax.random.key(0), X)
    model = js.prune_model(variables, 0.5, smallest=1).apply(transposed)
    with pytest.raises(TypeError, match=r"goes into a linen\.Conv; this layer is a ConvTranspose"):
        model.apply(variables, X)
    module, found = planned_nnx()
    with pytest.raises(TypeError, match=r"block/conv: .*there is no module"):
        plans.apply(module)
    no_groups = js.prune_model(nnx.state(module, nnx.Param), {"layers/0/kernel": 0.5}, smallest=1)
    with pytest.raises(ValueError, match=r"feature_group_count=2; .*'layers/0/kernel': 2"):
        no_groups.apply(module)
    for wrong, words in ((3, "must be what js.prune_model"), (module, "no layer with a plan")):
        with pytest.raises((TypeError, ValueError), match=words), js.nn.pruned(wrong):
            pass
    with pytest.raises(ValueError, match="Linen has no plans"), js.nn.pruned(Linen()):
        pass

    @nnx.jit
    def inside(model):
        with js.nn.pruned(model):
            return model(X)

    with pytest.raises(TypeError, match=r"outside of nnx\.jit"):
        inside(found.apply(module))
