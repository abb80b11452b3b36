"""Whole models: prune_model, its directory, tuning, and flax's own layers with injected plans."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

import jaxsparse as js
from jaxsparse.select.choice import Reason


class Small(linen.Module):
    dense: dict | None = None

    @linen.compact
    def __call__(self, x):
        use = self.dense or {}
        conv = {k: v for k, v in use.items() if k.startswith("conv")}
        x = linen.relu(
            linen.Conv(
                32, (3, 3), name="conv", precision="highest", conv_general_dilated=conv.get("conv")
            )(x)
        )
        head = linen.Dense(40, name="head", precision="highest", dot_general=use.get("head"))
        return head(x.mean((1, 2)))


@pytest.fixture
def trained(rng):
    x = jnp.asarray(rng.standard_normal((2, 9, 11, 16), np.float32))
    return Small(), Small().init(jax.random.key(1), x), x


def test_prune_model_says_why(trained):
    _, params, _ = trained
    model = js.prune_model(params, 0.8, smallest=1)
    assert set(model.plans) == {"params/conv/kernel", "params/head/kernel"}
    text = str(model)
    assert "80.0 % pruned" in text
    assert "not a kernel" in text
    some = js.prune_model(params, {"params/head/kernel": 0.5}, smallest=1)
    assert set(some.plans) == {"params/head/kernel"}
    assert "no sparsity is named" in str(some)
    assert "fewer than" in str(js.prune_model(params, 0.5, smallest=10**6))
    by_rule = js.prune_model(params, lambda path, w: 0.5 if w.ndim == 4 else 0.9, smallest=1)
    assert round(by_rule["params/conv/kernel"].sparsity, 2) == 0.5
    with pytest.raises(ValueError, match="params/conv/kernel: sparsity"):
        js.prune_model(params, 2.0, smallest=1)


def test_flax_layers_with_injected_plans(trained):
    """The whole network sparse equals the masked network dense, values from the plan or kernel."""
    _, params, x = trained
    model = js.prune_model(params, 0.8, smallest=1)
    want = Small().apply(model.masked(params), x)
    for from_kernel in (False, True):
        layers = {
            "conv": js.nn.pruned_conv_general_dilated(
                model["params/conv/kernel"], from_kernel=from_kernel
            ),
            "head": js.nn.pruned_dot_general(model["params/head/kernel"], from_kernel=from_kernel),
        }
        sparse = Small(dense=layers)
        np.testing.assert_allclose(jax.jit(sparse.apply)(params, x), want, atol=2e-5)
    gradient = jax.grad(lambda p: jnp.sum(sparse.apply(p, x) ** 2))(params)
    want = jax.grad(lambda p: jnp.sum(Small().apply(model.masked(p), x) ** 2))(params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-4), gradient, want)


def test_nnx_layers(rng):
    x = jnp.asarray(rng.standard_normal((2, 9, 11, 16), np.float32))
    exact = {"precision": "highest"}  # a GPU's default is TF32
    conv = nnx.Conv(16, 24, (3, 3), strides=2, **exact, rngs=nnx.Rngs(0))
    model = js.prune_model(nnx.state(conv), 0.7, smallest=1)
    plan = next(iter(model.plans.values()))
    conv.kernel[...] = plan.to_dense()
    want = conv(x)
    conv.conv_general_dilated = js.nn.pruned_conv_general_dilated(plan)
    np.testing.assert_allclose(conv(x), want, atol=2e-5)
    layer = js.nn.nnx.PrunedConv(16, 24, (3, 3), 2, pruned=plan, **exact, rngs=nnx.Rngs(1))
    nnx.update(layer, nnx.state(conv))
    np.testing.assert_allclose(layer(x), want, atol=2e-5)
    np.testing.assert_allclose(nnx.jit(lambda m, x: m(x))(layer, x), want, atol=2e-5)
    linear = nnx.Linear(16, 24, **exact, rngs=nnx.Rngs(0))
    plan = js.pruned.inspect(
        np.where(js.prune.magnitude(linear.kernel[...], 0.8), linear.kernel[...], 0)
    )
    linear.kernel[...] = plan.to_dense()
    options = {"activation": "relu", **exact}
    layer = js.nn.nnx.PrunedDense(16, 24, pruned=plan, **options, rngs=nnx.Rngs(1))
    nnx.update(layer, nnx.state(linear))
    np.testing.assert_allclose(layer(x), jax.nn.relu(linear(x)), atol=2e-5)


@pytest.mark.parametrize("wanted", [None, jnp.float32])
def test_nnx_layers_honour_preferred_element_type(rng, wanted):
    options = {"dtype": jnp.bfloat16, "preferred_element_type": wanted, "rngs": nnx.Rngs(0)}
    x = jnp.asarray(rng.standard_normal((2, 9, 11, 16), np.float32))
    for plain, ours, size, kind in (
        (nnx.Linear, js.nn.nnx.PrunedDense, (16, 24), "matmul"),
        (nnx.Conv, js.nn.nnx.PrunedConv, (16, 24, (3, 3)), "conv"),
    ):
        dense = plain(*size, use_bias=False, **options)
        plan = js.pruned.inspect(dense.kernel[...], kind=kind)
        layer = ours(*size, pruned=plan, use_bias=False, **options)
        nnx.update(layer, nnx.state(dense))
        got, want = layer(x, out_sharding=None), dense(x)
        assert got.dtype == want.dtype == (wanted or jnp.bfloat16)
        np.testing.assert_allclose(got.astype("f4"), want.astype("f4"), atol=5e-2)
        with pytest.raises(ValueError, match="out_sharding: a frozen weight has none"):
            layer(x, out_sharding=jax.P("data"))


@pytest.mark.parametrize("padding", ["CIRCULAR", "REFLECT"])
@pytest.mark.parametrize("window", [(3, 3), (4, 1)])
def test_paddings_of_flax(rng, padding, window):
    x = jnp.asarray(rng.standard_normal((2, 3, 9, 11, 4), np.float32))
    options = {"padding": padding, "strides": 2, "kernel_dilation": (1, 2), "precision": "highest"}
    plain = linen.Conv(8, window, **options)
    params = plain.init(jax.random.key(0), x)
    model = js.prune_model(params, 0.5, smallest=1)
    plan, want = model["params/kernel"], plain.apply(model.masked(params), x)
    layer = js.nn.linen.PrunedConv(8, window, pruned=plan, **options)
    np.testing.assert_allclose(layer.apply(params, x), want, atol=2e-5)
    other = js.nn.nnx.PrunedConv(4, 8, window, pruned=plan, **options, rngs=nnx.Rngs(0))
    other.kernel[...] = params["params"]["kernel"]
    np.testing.assert_allclose(other(x), want, atol=2e-5)


@pytest.mark.parametrize("dtype", [None, jnp.bfloat16])
def test_linen_layers_load_flax_checkpoints(rng, dtype):
    x = jnp.asarray(rng.standard_normal((2, 9, 11, 16), np.float32))
    exact = {"dtype": dtype, "precision": "highest"}  # a GPU's default is TF32
    options = {"strides": 2, "kernel_dilation": 2, **exact}
    plain = linen.Conv(24, (3, 3), **options)
    params = plain.init(jax.random.key(0), x)
    plan = js.prune_model(params, 0.7, smallest=1)
    layer = js.nn.linen.PrunedConv(24, (3, 3), pruned=plan["params/kernel"], **options)
    tolerance = 2e-5 if dtype is None else 5e-2
    assert jax.tree.map(jnp.shape, layer.init(jax.random.key(0), x)) == jax.tree.map(
        jnp.shape, params
    )
    got, want = layer.apply(params, x), plain.apply(plan.masked(params), x)
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got.astype("f4"), want.astype("f4"), atol=tolerance)
    dense = linen.Dense(24, **exact)
    params = dense.init(jax.random.key(0), x)
    plan = js.prune_model(params, 0.7, smallest=1)
    layer = js.nn.linen.PrunedDense(24, pruned=plan["params/kernel"], **exact)
    got, want = layer.apply(params, x), dense.apply(plan.masked(params), x)
    np.testing.assert_allclose(got.astype("f4"), want.astype("f4"), atol=tolerance)


def test_layers_refuse(rng):
    plan = js.pruned.inspect(np.eye(8, 24, dtype=np.float32))
    conv = js.pruned.inspect(np.ones((3, 3, 8, 24), np.float32), kind="conv")
    layers = js.nn.linen
    cases = [
        (TypeError, "PrunedWeight", lambda: layers.PrunedDense(24)),
        (ValueError, "features", lambda: layers.PrunedDense(25, pruned=plan)),
        (ValueError, "activation", lambda: layers.PrunedDense(24, pruned=plan, activation="x")),
        (ValueError, "kind", lambda: layers.PrunedConv(24, (3, 3), pruned=plan)),
        (ValueError, "kernel_size", lambda: layers.PrunedConv(24, (5, 3), pruned=conv)),
        (ValueError, "mask", lambda: layers.PrunedConv(24, (3, 3), pruned=conv, mask=jnp.ones(3))),
        (
            ValueError,
            "padding='CAUSAL'",
            lambda: layers.PrunedConv(24, (3, 3), pruned=conv, padding="CAUSAL").init(
                jax.random.key(0), jnp.ones((1, 9, 9, 8))
            ),
        ),
        (
            TypeError,
            "lhs has dtype int32",
            lambda: js.nn.pruned_dot_general(plan)(
                jnp.ones((2, 8), int), jnp.ones((8, 24)), (((1,), (0,)), ((), ()))
            ),
        ),
        (
            ValueError,
            "feature_group_count",
            lambda: layers.PrunedConv(24, (3, 3), pruned=conv, feature_group_count=2),
        ),
        (
            ValueError,
            "in_features",
            lambda: js.nn.nnx.PrunedDense(9, 24, pruned=plan, rngs=nnx.Rngs(0)),
        ),
        (
            ValueError,
            "shape",
            lambda: nnx.Linear(9, 24, dot_general=js.nn.pruned_dot_general(plan), rngs=nnx.Rngs(0))(
                jnp.ones((2, 9))
            ),
        ),
    ]
    for error, words, call in cases:
        with pytest.raises(error, match=words):
            call()


def test_a_saved_directory_loads_back(trained, tmp_path):
    _, params, _ = trained
    model = js.prune_model(params, 0.8, smallest=1)
    model.save(tmp_path / "plans")
    again = js.pruned.PrunedModel.load(tmp_path / "plans")
    assert str(again) == str(model)
    for name, plan in model.plans.items():
        assert again[name].plan == plan.plan
        np.testing.assert_array_equal(again[name].values, plan.values)
    (tmp_path / "plans" / "1.plan").unlink()
    with pytest.raises(ValueError, match=r"1\.plan"):
        js.pruned.PrunedModel.load(tmp_path / "plans")
    (tmp_path / "plans" / "plans.json").write_text('{"paths": ["../../etc/passwd"]}')
    with pytest.raises(ValueError, match="index"):
        js.pruned.PrunedModel.load(tmp_path / "plans")


def test_a_path_without_a_plan_and_a_folder_that_is_missing_are_named(rng, tmp_path):
    params = {"a": {"kernel": rng.standard_normal((8, 8), np.float32)}}
    model = js.prune_model(params, 0.5, smallest=1)
    assert repr(model) == "PrunedModel(1 plans of 1 leaves: print it)"
    with pytest.raises(KeyError, match="no plan of 'b'; there are a/kernel"):
        model["b"]
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        model["a/kernel"].save(tmp_path / "none" / "plan")


def test_plans_that_were_exchanged_are_refused(rng, tmp_path):
    params = {n: {"kernel": rng.standard_normal((64, 64)).astype("f4")} for n in "abc"}
    model = js.prune_model(params, 0.5)
    model.save(tmp_path)
    one, other = (tmp_path / f"{i}.plan" for i in range(2))
    data = one.read_bytes(), other.read_bytes()
    one.write_bytes(data[1])
    other.write_bytes(data[0])
    with pytest.raises(ValueError, match=r"0\.plan is not the plan of 'a/kernel'"):
        js.pruned.PrunedModel.load(tmp_path)
    model.save(tmp_path)
    assert js.pruned.PrunedModel.load(tmp_path)["a/kernel"].plan == model["a/kernel"].plan
    index = (tmp_path / "plans.json").read_bytes()
    less = js.prune_model({"a": params["b"]}, 0.5)
    less.save(tmp_path)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["0.plan", "plans.json"]
    (tmp_path / "plans.json").write_bytes(index)  # as where the save had not come so far
    with pytest.raises(ValueError, match=r"0\.plan is not the plan"):
        js.pruned.PrunedModel.load(tmp_path)


def test_an_index_that_was_edited_is_refused(trained, tmp_path):
    """The names of two plans exchanged, say: nothing else of the folder would tell."""
    _, params, _ = trained
    js.prune_model(params, 0.8, smallest=1).save(tmp_path)
    index = tmp_path / "plans.json"
    data = index.read_bytes()
    conv, head = b"params/conv/kernel", b"params/head/kernel"
    exchanged = data.replace(conv, b"-").replace(head, conv).replace(b"-", head)
    for edited in (exchanged, data.replace(b"80.0 %", b"90.0 %"), data.replace(b": 256", b": 9")):
        assert edited != data
        index.write_bytes(edited)
        with pytest.raises(ValueError, match=r"plans\.json is altered"):
            js.pruned.PrunedModel.load(tmp_path)
    for at in range(len(data)):
        index.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(ValueError, match=r"plans\.json is (altered|not an index of plans)"):
            js.pruned.PrunedModel.load(tmp_path)


def test_what_would_not_load_is_not_saved(trained, tmp_path):
    _, params, _ = trained
    model = js.prune_model(params, 0.8, smallest=1)
    model.save(tmp_path)
    before = {f: f.read_bytes() for f in tmp_path.iterdir()}
    path = "params/head/kernel"
    bad = {**model.plans, path: model[path].with_values(model[path].values * jnp.nan)}
    with pytest.raises(ValueError, match=f"{path}: the values hold NaN or Inf"):
        js.pruned.PrunedModel(bad, model.report, model.positions).save(tmp_path)
    assert {f: f.read_bytes() for f in tmp_path.iterdir()} == before


def test_two_leaves_of_one_path_are_refused(rng):
    w = rng.standard_normal((64, 64)).astype(np.float32)
    params = {"a/b": {"kernel": w}, "a": {"b": {"kernel": -w}}}
    with pytest.raises(ValueError, match="two leaves of the path 'a/b/kernel'"):
        js.prune_model(params, 0.5)
    model = js.prune_model({"a/b": {"kernel": w}}, 0.5)
    for call in (model.masked, model.values):
        with pytest.raises(ValueError, match="two leaves of the path 'a/b/kernel'"):
            call(params)


def test_errors_name_the_leaf(rng):
    w = rng.standard_normal((64, 64)).astype(np.float32)
    model = js.prune_model({"a": {"kernel": w}}, 0.5)
    for call in (model.masked, model.values):
        with pytest.raises(ValueError, match="a/kernel: weight has shape"):
            call({"a": {"kernel": w[:, :9]}})
        with pytest.raises(TypeError, match="a/kernel: weight has dtype int"):
            call({"a": {"kernel": w.astype(int)}})

    def prune(w, **options):
        return js.prune_model({"a": {"kernel": w}}, 0.5, smallest=0, **options)

    with pytest.raises(TypeError, match="a/kernel: the kernel is traced"):
        jax.jit(prune)(w)
    with pytest.raises(TypeError, match="a/kernel: the kernel is a ShapeDtypeStruct"):
        prune(jax.ShapeDtypeStruct(w.shape, w.dtype))
    with pytest.raises(TypeError, match="a/kernel: groups='2'"):
        prune(np.ones((3, 3, 4, 4), np.float32), groups={"a/kernel": "2"})


def test_a_float64_kernel_is_planned_as_float32(rng):
    w = rng.standard_normal((64, 64))
    params = {"a": {"kernel": w}}
    model = js.prune_model(params, 0.5)
    assert model["a/kernel"].dtype == np.float32
    kept = js.prune.magnitude(w, 0.5)
    np.testing.assert_array_equal(model.masked(params)["a"]["kernel"], np.float32(w) * kept)


def test_the_report_says_what_it_assumes(rng):
    kernel = rng.standard_normal((3, 3, 16, 32)).astype(np.float32)
    params = {"a": {"kernel": kernel}, "b": {"kernel": kernel}}
    text = str(js.prune_model(params, 0.5, positions=99, groups={"b/kernel": 2}))
    first, a, b = text.splitlines()
    assert first == "estimates for 99 rows, or pixels of a result"
    assert "50.0 % pruned, 1 group, " in a
    assert "50.0 % pruned, 2 groups, " in b


@pytest.mark.parametrize(
    "index",
    [
        b'{"paths": [], "digests": [], "report": [{"path": "\xff"}]}',
        b'{"paths": ["a"], "digests": [], "report": []}',
        b'{"paths": ["a", "a"], "digests": ["", ""], "report": []}',
        b'{"paths": ["a"], "report": []}',
    ],
)
def test_a_damaged_index_is_refused(tmp_path, index):
    (tmp_path / "plans.json").write_bytes(index)
    with pytest.raises(ValueError, match="not an index of plans"):
        js.pruned.PrunedModel.load(tmp_path)


def test_a_tree_with_other_paths_is_refused(trained):
    _, params, _ = trained
    model = js.prune_model(params["params"], 0.8, smallest=1)
    for call in (model.masked, model.values):
        with pytest.raises(ValueError, match="no 'conv/kernel', which is planned"):
            call(params)
    assert set(model.values(params["params"])) == set(model.plans)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0), (3, 3, 0, 4), (0, 3, 4, 4)])
def test_a_kernel_without_weights_is_left(shape):
    model = js.prune_model({"a": {"kernel": np.ones(shape, np.float32)}}, 0.5, smallest=0)
    assert not model.plans
    assert "no weights" in str(model)


def test_tuning_keeps_what_it_measured(rng, tmp_path):
    w = rng.standard_normal((3, 3, 16, 24)).astype(np.float32)
    plan = js.pruned.inspect(np.where(js.prune.magnitude(w, 0.9), w, 0), kind="conv")
    x = jnp.asarray(rng.standard_normal((1, 10, 10, 16), np.float32))
    call = {"strides": 2, "precision": "highest"}
    measuring = {"seconds": 20, "folder": tmp_path, "progress": False}
    tuned = js.pruned.tune(plan, x, **measuring, **call)
    assert len(tuned.plan.tuned) == 1
    again = js.pruned.tune(tuned, x, **measuring, **call)
    assert again.plan == tuned.plan
    np.testing.assert_allclose(
        js.pruned_conv(x, tuned, **call), js.pruned_conv(x, plan, **call), atol=1e-5
    )
    choice = js.explain(lambda x: js.pruned_conv(x, tuned, **call), x).calls[0].choice
    assert choice is not None
    assert choice.reason is Reason.PLAN
    tuned.save(tmp_path / "a.plan")
    assert js.PrunedWeight.load(tmp_path / "a.plan").plan == tuned.plan


@pytest.mark.parametrize(
    ("sparsity", "options", "message"),
    [
        (1.5, {}, "sparsity=1.5"),
        ("a", {}, "sparsity='a'"),
        (None, {}, "sparsity=None"),
        ({"nope/kernel": 0.5}, {}, "sparsity names 'nope/kernel'"),
        ({"a/kernel": 2.0}, {}, r"sparsity\['a/kernel'\]=2.0"),
        (lambda name, leaf: -1.0, {"smallest": 0}, "sparsity of 'a/kernel'=-1.0"),
        (0.5, {"groups": {"zzz": 2}}, "groups names 'zzz'"),
        (0.5, {"positions": -3}, "positions=-3"),
        (0.5, {"smallest": "a"}, "smallest='a'"),
    ],
)
def test_wrong_options_of_prune_model(sparsity, options, message):
    params = {"a": {"kernel": np.ones((4, 6), np.float32)}}
    with pytest.raises((TypeError, ValueError), match=message):
        js.prune_model(params, sparsity, **options)
