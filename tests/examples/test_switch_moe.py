"""The encoder-decoder with experts: its forms agree, and the demo at its small size."""

import functools
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples.test_demos import check_picture

#: Of the largest value, in float32: sums are in another order. A GPU multiplies in TF32.
TOLERANCE = 2e-2 if jax.default_backend() == "gpu" else 1e-5


@pytest.fixture
def layer(examples):
    """(module, sizes, one layer's experts, tokens)"""
    switch = importlib.import_module("models.switch")
    config = switch.Config(
        2, 64, 32, 5, 16, (8, 4), capacity=5.0, longest=5.0
    )  # nothing is dropped
    rng = np.random.default_rng(0)
    shapes = {"router": (64, 5), "up": (5, 64, 32), "down": (5, 32, 64)}
    p = {k: jnp.asarray(rng.standard_normal(s) / 8, jnp.float32) for k, s in shapes.items()}
    return switch, config, p, jnp.asarray(rng.standard_normal((40, 64)), jnp.float32)


def test_forms_of_experts_agree(layer):
    """Results, load-balance losses, and the gradients of both."""
    switch, config, p, x = layer

    def found(form, p, x):
        y, loss, dropped, _ = switch.experts(config, form, p, x)
        return (y * y).sum() + loss, (y, loss, dropped)

    results = {}
    for form in switch.FORMS[1:]:
        run = functools.partial(found, form)
        results[form] = jax.jit(jax.value_and_grad(run, argnums=(0, 1), has_aux=True))(p, x)
    want = results.pop("ragged")
    assert want[0][1][0].any()
    for form, got in results.items():
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            bound = TOLERANCE * max(float(jnp.abs(b).max()), 1e-30)
            np.testing.assert_allclose(a, b, rtol=0, atol=bound, err_msg=form)


def test_padded_drops_what_is_beyond_the_capacity(layer):
    switch, config, p, x = layer
    p = p | {"router": p["router"].at[:, 2].set(0).at[0, 2].set(1e4)}
    x = x.at[:, 0].set(jnp.where(jnp.arange(40) < 30, 1.0, -1.0))  # 30 tokens choose expert 2
    y, _, dropped, longest = switch.experts(config._replace(capacity=1.25), "padded", p, x)
    whole, _, none, _ = switch.experts(config._replace(longest=float(longest)), "whole", p, x)
    assert none == 0
    assert dropped >= 0.5  # 30 tokens, 10 rows
    np.testing.assert_allclose(y[:10], whole[:10], atol=1e-5)
    assert not y[10:30].any()
    assert whole[10:30].any(1).all()


def test_the_demo(examples, tmp_path, capsys):
    demo = importlib.import_module("switch_moe")
    found = demo.main(["--quick", "--out", str(tmp_path)])
    assert [row.what for row in found.rows] == list(demo.PASSES)
    for row in found.rows:
        assert row.error <= demo.BOUND["float32"] or jax.default_backend() == "gpu"
        assert set(row.times) == set(row.memory) == set(demo.FORMS)
        assert min(row.times.values()) > 0
        assert 0 <= row.dropped < 1
    check_picture(found.picture)
    assert "whole and sparse differ from ragged by at most" in capsys.readouterr().out
