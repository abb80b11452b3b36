"""A choice is made once for a problem and a setting; and a call traces fast."""

import dataclasses
import statistics
import time

import jax
import jax.numpy as jnp
import pytest

import jaxsparse as js
from jaxsparse.select import choice as choice_module
from jaxsparse.select.choice import chooser, choosers, register
from jaxsparse.select.select import _chosen

X, KERNEL = jnp.ones((1, 9, 41, 16)), jnp.ones((3, 3, 16, 16))
MASK = jnp.ones(X.shape[:3], bool)


@pytest.fixture
def asked(monkeypatch):
    """The problems whose candidates are worked out, by op."""
    found = []
    monkeypatch.setattr(choice_module, "_choosers", dict(choice_module._choosers))
    for op in choosers():
        real = chooser(op)

        def counted(problem, real=real):
            found.append((real.op, problem))
            return real.candidates(problem)

        register(dataclasses.replace(real, candidates=counted))
    _chosen.cache_clear()
    jax.clear_caches()
    yield found
    _chosen.cache_clear()


def once(asked):
    return len(asked) == len(set(asked)) > 0


def test_an_index_and_two_convolutions_ask_once_for_a_problem(asked):
    other = jnp.ones((3, 3, 16, 8))

    def model(x, mask):
        index = js.tile_index(mask, (1, 1))
        y = js.masked_conv(js.masked_conv(x, KERNEL, index), KERNEL, index)
        return js.masked_conv(y, other, index)

    jax.jit(model).trace(X, MASK)
    assert once(asked)
    assert len({p.kernel_shape for _, p in asked}) == 2
    before = len(asked)
    jax.jit(lambda *args: model(*args)).trace(X, MASK)
    assert len(asked) == before


def test_the_index_the_call_and_explain_read_the_same_choice(asked):
    """Of a mask, which the op indexes itself, with the choice in it where the device chooses."""
    told = js.explain(lambda x: js.masked_conv(x, KERNEL, MASK), X).calls[0]
    assert once(asked)
    again = js.explain(lambda x: js.masked_conv(x, KERNEL, MASK), X).calls[0]
    assert once(asked)
    assert again.choice is told.choice


def test_another_setting_is_another_choice(asked):
    def first():
        return js.explain(lambda x: js.masked_conv(x, KERNEL, MASK), X).calls[0].choice

    free = first()
    with js.config(variant="dense", selection="static"):
        assert first().first == "dense"
    with js.config(tuning=js.TuningTable(device="x", measured="", entries=())):
        assert first().us is None
    assert first() is free


def test_gradients_ask_once_too(asked):
    def loss(x, kernel):
        return jnp.sum(js.masked_conv(x, kernel, MASK, activation="gelu"))

    jax.jit(jax.grad(loss, argnums=(0, 1))).trace(X, KERNEL)
    assert once(asked)


LAYERS = 50


def cpu_seconds(make):
    """Of this process, tracing what `make` makes: the median of several."""
    found = []
    for _ in range(7):
        function = make()
        start = time.process_time()
        jax.jit(function).trace(X, MASK)
        found.append(time.process_time() - start)
    return statistics.median(found)


def test_fifty_layers_trace_about_as_fast_as_dense_ones():
    """On one core 7 to 9 ms, where fifty of XLA's convolutions and masks take 9 to 12: the bound
    is three times that.
    """

    def sparse():
        def function(x, mask):
            index = js.tile_index(mask, (1, 1))
            for _ in range(LAYERS):
                x = js.masked_conv(x, KERNEL, index)
            return x

        return function

    def dense():
        def function(x, mask):
            numbers = ("NHWC", "HWIO", "NHWC")
            for _ in range(LAYERS):
                x = jax.lax.conv_general_dilated(
                    x, KERNEL, (1, 1), "SAME", dimension_numbers=numbers
                )
                x = jnp.where(mask[..., None], x, 0)
            return x

        return function

    for make in (sparse, dense):
        jax.jit(make()).trace(X, MASK)
    assert cpu_seconds(sparse) < 2.5 * cpu_seconds(dense)
