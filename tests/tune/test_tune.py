"""Tuning: the table, its round trip, the cache, and what is left out."""

import functools
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import jaxsparse as js
from jaxsparse.__main__ import app
from jaxsparse.bench.masked_conv.run import platform_name
from jaxsparse.ops.masked_conv import native as masked_conv_native
from jaxsparse.select.portfolio import set_cost
from jaxsparse.select.problem import Problem
from jaxsparse.select.variants import table
from jaxsparse.testing import case
from jaxsparse.tune import tune
from jaxsparse.tune.cache import CostCache, default_folder
from jaxsparse.tune.costs import Costs
from jaxsparse.tune.tuner import draw_masks, scale, sites_of

PROBLEM = Problem("masked_conv", "cpu", "float32", {"pixels": 100.0}, 100)
quick = functools.partial(
    tune, densities=(0.1, 1.0), samples=1, calls=2, merge=False, cache=False, progress=False
)


@pytest.fixture
def call():
    small = case("b1_16x16x16_quick")
    arrays = small.arrays()
    mask = jnp.asarray(np.random.default_rng(0).random(small.mask_shape) < 0.3)

    def run(x, kernel):
        return js.masked_conv(x, kernel, mask, bias=jnp.asarray(arrays["bias"]))

    return run, jnp.asarray(arrays["x"]), jnp.asarray(arrays["kernel"])


@pytest.fixture
def fresh_traces():
    """Ops keep their traces: a patched handler needs new ones, and must leave none behind."""
    jax.clear_caches()
    yield
    jax.clear_caches()


def test_a_table_round_trips_and_is_accepted(call):
    run, *args = call
    made = quick(run, *args, size=3)
    assert js.TuningTable.from_json(made.to_json()) == made
    (entry,) = made.entries
    assert entry.op == "masked_conv"
    assert 1 <= len(entry.ladder) <= 3
    assert entry.ladder[-1].up_to == 1.0
    names = {*table("masked_conv", platform_name()), "dense"}
    assert {entry.static, *(rung.variant for rung in entry.ladder)} <= names
    want = run(*args)
    for selection in ("static", "switch"):
        with js.config(tuning=made, selection=selection):
            np.testing.assert_allclose(jax.jit(run)(*args), want, rtol=2e-3, atol=2e-3)
    with js.config(tuning=made):
        choice = js.explain(run, *args).calls[0].choice
        assert choice.how == "device" or choice.rungs[0].variant == entry.static


def test_gradients_are_tuned_too(call):
    _, x, kernel = call
    wide = jnp.zeros((*kernel.shape[:3], 32), jnp.float32)
    small = case("b1_16x16x16_quick")
    mask = jnp.ones(small.mask_shape, bool)

    def loss(x, kernel):
        return jnp.sum(js.masked_conv(x, kernel, mask))

    sites = sites_of(jax.grad(loss, argnums=(0, 1)), x, wide)
    outputs = {s.problem.features["outputs"] for s in sites}
    assert outputs == {32, 16}
    made = quick(jax.grad(loss, argnums=(0, 1)), x, wide)
    assert {e.features["outputs"] for e in made.entries} == {32, 16}


def test_alike_problems_share_an_entry(call):
    run, x, kernel = call
    made = quick(jax.grad(lambda x, k: jnp.sum(run(x, k))), x, kernel)
    assert len(made.entries) == 1


def test_shapes_suffice(call):
    run, x, kernel = call
    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in (x, kernel)]
    assert len(quick(run, *shapes, densities=(1.0,)).entries) == 1


def test_nothing_to_tune():
    with pytest.raises(ValueError, match="nothing to tune"):
        tune(jnp.sum, jnp.ones(3))


@pytest.mark.parametrize(
    "option",
    [
        {"densities": ()},
        {"densities": "x"},
        {"densities": 1.5},
        {"masks": 3},
        {"masks": []},
        {"samples": 0},
        {"calls": 0},
        {"budget": 0},
        {"budget": 0.5},
        {"masks": "stripes"},
        {"share": 0},
        {"minutes": 0},
        {"size": 0},
        {"cache": 3},
    ],
)
def test_a_wrong_option_is_named(call, option):
    run, *args = call
    with pytest.raises((TypeError, ValueError), match=next(iter(option))):
        quick(run, *args, **option)


def test_one_mask_and_a_folder_by_name(call, tmp_path):
    run, *args = call
    mask = np.zeros(case("b1_16x16x16_quick").mask_shape, bool)
    mask[:, :4] = True
    folder = tmp_path / "kept"
    made = quick(run, *args, masks=mask, cache=str(folder))
    assert len(made.entries) == 1
    assert list(folder.glob("*.json"))


@pytest.mark.usefixtures("fresh_traces")
def test_a_wrong_variant_is_left_out(call, monkeypatch):
    run, *args = call
    bad = next(iter(table("masked_conv", platform_name())))
    right = masked_conv_native.forward

    def wrong(p, where, variant, *operands):
        out = right(p, where, variant, *operands)
        return out + jnp.ones_like(out) if variant == bad else out

    monkeypatch.setattr(masked_conv_native, "forward", wrong)
    with pytest.warns(RuntimeWarning, match=f"variant {bad}: wrong by"):
        made = quick(run, *args, densities=(0.5,))
    assert bad not in {made.entries[0].static, *(r.variant for r in made.entries[0].ladder)}


def test_the_cache_saves_measuring(call, tmp_path, monkeypatch):
    run, *args = call
    first = quick(run, *args, cache=tmp_path)
    assert len(list(tmp_path.glob("*.json"))) == 1
    # By module: the package has a function of the name `tune`.
    monkeypatch.setattr(importlib.import_module("jaxsparse.tune.tuner"), "measure_site", None)
    again = quick(run, *args, cache=tmp_path)
    assert again.entries == first.entries
    with pytest.raises(TypeError):
        quick(run, *args, cache=tmp_path, densities=(0.3,))


def test_a_broken_cache_file_is_measured_again(tmp_path):
    cache = CostCache(tmp_path)
    costs = Costs(("a",), (0.5,), ((1.0,),))
    cache.put({"key": 1}, costs)
    assert cache.get({"key": 1}) == costs
    assert cache.get({"key": 2}) is None
    (kept,) = tmp_path.iterdir()  # nothing beside it: no lock, no part
    kept.write_text("{")
    assert cache.get({"key": 1}) is None
    kept.unlink()
    kept.mkdir()  # neither to be read nor to be replaced
    assert cache.get({"key": 1}) is None
    with pytest.warns(RuntimeWarning, match="measurements are not kept"):
        cache.put({"key": 1}, costs)
    assert CostCache(None).get({"key": 1}) is None


def test_a_folder_that_cannot_be_made_costs_the_cache_alone(call, tmp_path):
    run, *args = call
    (tmp_path / "file").write_text("in the way")
    with pytest.warns(RuntimeWarning, match="measurements are not kept"):
        made = quick(run, *args, densities=(0.5,), cache=tmp_path / "file" / "tune")
    assert made.entries


def test_without_a_home_measurements_are_kept_among_temporary_files(monkeypatch):
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    folder = default_folder()
    assert folder.is_absolute()
    assert "~" not in str(folder)


def test_ladder_of_known_costs():
    costs = Costs(
        ("sparse", "dense", "broken"),
        (0.1, 0.5, 1.0),
        ((1.0, 10.0, None), (5.0, 10.0, None), (12.0, 10.0, None)),
    )
    entry = costs.entry(PROBLEM, 3)
    assert entry.static == "sparse"
    assert [(r.up_to, r.variant) for r in entry.ladder] == [(0.75, "sparse"), (1.0, "dense")]
    assert costs.best() == pytest.approx(16 / 3)


def test_a_ladder_of_at_least_four():
    costs = Costs(
        ("best", "other", "third", "dense", "last"),
        (0.1, 0.3, 0.5, 0.7, 1.0),
        tuple((1.0, 1.2 + d, 1.6 - d, 3.0 - 2 * d, 9.0) for d in (0.1, 0.3, 0.5, 0.7, 1.0)),
    )
    assert [r.variant for r in costs.entry(PROBLEM, 4).ladder] == ["best", "third"]
    entry = costs.entry(PROBLEM, 4, least=4)
    assert entry.static == "best"
    assert [r.variant for r in entry.ladder] == ["other", "best", "third", "dense"]
    costs = Costs(("best", "dense"), (0.1, 0.5), ((1.0, 2.0), (1.0, 3.0)))
    assert [r.variant for r in costs.entry(PROBLEM, 4, least=4).ladder] == ["dense", "best"]


def test_set_cost_of_known_costs():
    costs = Costs(
        ("sparse", "dense", "broken"),
        (0.1, 0.5, 1.0),
        ((1.0, 10.0, None), (5.0, 10.0, None), (12.0, 10.0, None)),
    )
    assert set_cost(costs.table(), [0, 1]) == pytest.approx(16 / 3)


def test_joined_costs():
    one = Costs(("a", "b"), (0.1,), ((1.0, 2.0),))
    other = Costs(("b", "c"), (0.2,), ((3.0, 4.0),))
    assert one.joined(other) == Costs(("b",), (0.1, 0.2), ((2.0,), (3.0,)))


def test_masks_by_name_or_from_data():
    assert len(draw_masks(["blobs", "random"], (1, 8, 8), (0.1, 0.5))) == 4
    real = np.zeros((1, 4, 4), bool)
    real[:, :2] = True
    (scaled,) = draw_masks([real], (2, 8, 6), ())
    assert scaled.shape == (2, 8, 6)
    assert scaled[:, :4].all()
    assert not scaled[:, 4:].any()
    with pytest.raises(TypeError, match="not both"):
        draw_masks(["blobs", real], (1, 8, 8), (0.1,))
    with pytest.raises(TypeError, match="a mask is bool"):
        scale(np.zeros((4, 4)), (1, 8, 8))
    with pytest.raises(ValueError, match="empty"):
        draw_masks([], (1, 8, 8), (0.1,))


def test_command(tmp_path):
    out = tmp_path / "table.json"
    arguments = ["--case=quick", "--density=0.2", "--density=1", "--samples=1", "--calls=2"]
    tiles = ["--tile=1x1", "--tile=2x4"]
    done = CliRunner().invoke(app, ["tune", *arguments, *tiles, "--no-cache", f"--out={out}"])
    assert done.exit_code == 0, done.output
    made = js.TuningTable.from_json(out.read_bytes())
    assert made.tile in ((1, 1), (2, 4))
    assert "masked_conv" in done.output
    done = CliRunner().invoke(app, ["tune", "--case=nothing"])
    assert done.exit_code == 2


def test_least_is_not_above_size():
    with pytest.raises(ValueError, match="least=4 is above size=2"):
        js.tune(lambda: None, least=4, size=2)
