"""What `js.pruned.tune` measures, in which order, and what its cache is trusted with."""

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest

import jaxsparse as js
from jaxsparse.pruned.executors import choice as executors
from jaxsparse.pruned.strips import STRIPS
from jaxsparse.select.choice import Reason
from jaxsparse.select.table import Entry, Rung
from jaxsparse.tune import pruned as tuner


@pytest.fixture
def call(rng):
    w = np.where(rng.random((64, 32)) < 0.2, rng.standard_normal((64, 32)), 0).astype(np.float32)
    return js.pruned.inspect(w), jnp.asarray(rng.standard_normal((8, 64)), jnp.float32)


@pytest.fixture
def measured(monkeypatch):
    """The executors that were looked at, in order."""
    found = []

    def spy(x, plan, **options):
        found.append(plan.plan.tuned[0].executor)
        return js.pruned_matmul(x, plan, **options)

    monkeypatch.setattr(tuner, "pruned_matmul", spy)
    return found


def executor(name, pack=STRIPS.pack, candidates=(None,)):
    found = list(candidates)
    return STRIPS._replace(name=name, pack=pack, candidates=lambda problem: found)


def install(monkeypatch, *some):
    """These and dense as the CPU's executors."""
    if jax.default_backend() != "cpu":
        pytest.skip("they stand in among the CPU's executors")
    dense = executors.executor("cpu", "dense")
    monkeypatch.setitem(executors.EXECUTORS, "cpu", (*some, dense._replace(cost=lambda p: 1e9)))


def test_the_default_and_dense_come_first_then_all_in_turn(call, monkeypatch):
    plan, x = call
    many = [None, *((i,) for i in range(150))]
    install(monkeypatch, executor("one", candidates=many), executor("two", candidates=many[:3]))
    problem = tuner._problem(plan, x, {})
    found = [(t.executor, t.candidate) for t in tuner._candidates(problem)]
    assert found[:5] == [
        ("one", None),
        ("dense", None),
        ("two", None),
        ("one", (0,)),
        ("two", (0,)),
    ]
    assert len(found) == len(set(found)) == tuner.MOST


def test_without_time_the_default_and_dense_are_measured(call, measured, tmp_path, monkeypatch):
    plan, x = call
    install(monkeypatch, executor("one", candidates=(None, None)), executor("two"))
    keep = {"folder": tmp_path, "progress": False}
    tuned = js.pruned.tune(plan, x, seconds=1e-9, **keep)
    assert measured == ["one", "dense"]
    assert tuned.plan.tuned[0].executor in measured
    js.pruned.tune(plan, x, seconds=1e-9, **keep)
    assert len(measured) == 2  # no more time: nothing is measured again
    js.pruned.tune(plan, x, seconds=60, **keep)
    assert measured[2:] == ["one", "dense", "two", "one"]
    js.pruned.tune(plan, x, seconds=600, **keep)
    assert len(measured) == 6  # every candidate was measured: more time changes nothing


def test_a_candidate_that_cannot_be_packed_is_left_out(call, tmp_path, monkeypatch):
    plan, x = call

    def pack(problem, candidate):
        raise ValueError("the moon is full")

    install(monkeypatch, executor("bad", pack), executor("good"))
    with pytest.warns(RuntimeWarning, match="leaves out bad None: the moon is full"):
        tuned = js.pruned.tune(plan, x, seconds=60, folder=tmp_path, progress=False)
    assert tuned.plan.tuned[0].executor in ("good", "dense")
    monkeypatch.setitem(executors.EXECUTORS, "cpu", (executor("bad", pack),))
    with (
        pytest.warns(RuntimeWarning, match="leaves out"),
        pytest.raises(ValueError, match="the moon"),
    ):
        js.pruned.tune(plan, x, seconds=9, folder=tmp_path / "other", progress=False)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-3],
        lambda data: b'{"best": "\xff"}',
        lambda data: data.replace(b'"dense"', b'"\xff\xff"').replace(b'"strips"', b'"\xff"'),
        lambda data: data.replace(b'"x_shape":[8,64]', b'"x_shape":[9,64]'),
        lambda data: data.replace(b'"dense"', b'"gone"').replace(b'"strips"', b'"gone"'),
        lambda data: data.replace(b'"candidate":', b'"candidate":[7],"":'),
    ],
)
def test_a_damaged_cache_is_measured_again(call, tmp_path, damage):
    plan, x = call
    keep = {"seconds": 0.01, "folder": tmp_path, "progress": False}
    js.pruned.tune(plan, x, **keep)
    (file,) = tmp_path.iterdir()
    damaged = damage(file.read_bytes())
    assert damaged != file.read_bytes()
    file.write_bytes(damaged)
    best = js.pruned.tune(plan, x, **keep).plan.tuned[0]
    assert best.x_shape == (8, 64)
    assert best.executor in ("strips", "dense")
    assert msgspec.json.decode(file.read_bytes(), type=tuner.Measured).best == best


def test_a_folder_by_its_name_and_an_input_by_its_shape(call, tmp_path):
    plan, x = call
    keep = {"seconds": 0.01, "progress": False}
    best = js.pruned.tune(plan, x, folder=str(tmp_path), **keep).plan.tuned[0]
    assert len(list(tmp_path.iterdir())) == 1
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    assert js.pruned.tune(plan, shape, folder=tmp_path, **keep).plan.tuned[0] == best
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"folder": 3}, "folder must be a path or None, not int"),
        ({"x": [1.0]}, "x must be an array or a ShapeDtypeStruct, not list"),
        ({"pruned": 1}, "pruned must be a PrunedWeight, not int"),
    ],
)
def test_wrong_arguments(call, change, match):
    plan, x = call
    with pytest.raises(TypeError, match=match):
        js.pruned.tune(**({"pruned": plan, "x": x, "progress": False} | change))


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"second": 1}, TypeError, "js.pruned.tune and js.pruned_matmul take no argument 'second'"),
        ({"strides": 2}, TypeError, "js.pruned_matmul take no argument 'strides'"),
        ({"seconds": "1"}, TypeError, "seconds='1'"),
        ({"seconds": True}, TypeError, "seconds=True"),
        ({"seconds": float("nan")}, ValueError, "seconds=nan"),
        ({"seconds": float("inf")}, ValueError, "seconds=inf"),
        ({"seconds": -1}, ValueError, "seconds=-1"),
        ({"x": np.ones((8, 64), int)}, TypeError, "x has dtype int64"),
        ({"implementation": "reference"}, ValueError, "the reference of pruned_matmul runs here"),
    ],
)
def test_refused_before_the_cache_is_read(call, tmp_path, monkeypatch, change, error, match):
    plan, x = call
    monkeypatch.setattr(tuner, "_kept", lambda *args: pytest.fail("the cache is read"))
    options = {"pruned": plan, "x": x, "folder": tmp_path, "progress": False}
    with pytest.raises(error, match=match):
        js.pruned.tune(**(options | change))
    assert not list(tmp_path.iterdir())


def test_a_demanded_variant_leaves_nothing_to_tune(call, tmp_path):
    plan, x = call
    keep = {"seconds": 0.01, "folder": tmp_path, "progress": False}
    demanded = js.config(variant="dense")
    with demanded, pytest.raises(ValueError, match=r"js.config\(variant='dense'\) has no choice"):
        js.pruned.tune(plan, x, **keep)
    assert not list(tmp_path.iterdir())
    other = next(v for v in js.variants("masked_conv") if v.op == "masked_conv")
    with js.config(variant=other):
        assert len(js.pruned.tune(plan, x, **keep).plan.tuned) == 1


@pytest.mark.parametrize("traced", ["plan", "x", "nothing"])
def test_tuning_is_done_outside_of_jit(call, tmp_path, traced):
    plan, x = call
    keep = {"seconds": 0.01, "folder": tmp_path, "progress": False}
    tune = {
        "plan": lambda x: js.pruned.tune(plan.with_values(plan.values * x[0, 0]), call[1], **keep),
        "x": lambda x: js.pruned.tune(plan, x, **keep),
        "nothing": lambda x: js.pruned.tune(plan, call[1], **keep),
    }[traced]
    with pytest.raises(TypeError, match=r"js.pruned.tune is traced.*outside of jit"):
        jax.jit(tune)(x)
    assert not list(tmp_path.iterdir())


def test_what_was_tuned_for_a_plan_goes_before_a_table(call, tmp_path):
    plan, x = call
    tuned = js.pruned.tune(plan, x, seconds=0.01, folder=tmp_path, progress=False)
    found = js.explain(lambda x: js.pruned_matmul(x, tuned), x).calls[0].choice
    features = dict.fromkeys(("rows", "depth", "outputs", "kept"), 0.0)
    features |= {"rows": 8, "depth": 64, "outputs": 32, "kept": plan.plan.pattern.entries}
    other = next(name for name in found.names if name != found.first)
    entry = Entry("pruned_matmul", "float32", features, other, (Rung(1.0, other),))
    table = js.TuningTable(device="cpu", measured="", entries=(entry,))
    with js.config(tuning=table):
        untuned = js.explain(lambda x: js.pruned_matmul(x, plan), x).calls[0].choice
    assert (untuned.first, untuned.reason) == (other, Reason.TABLE)
    with js.config(tuning=table):
        again = js.explain(lambda x: js.pruned_matmul(x, tuned), x).calls[0].choice
    assert (again.first, again.reason) == (found.first, Reason.PLAN)
