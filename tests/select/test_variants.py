"""`js.variants` lists what `js.config(variant=)` takes, the dense operation and executors too."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsparse as js
from jaxsparse.select.bounded import BoundedProblem, candidates
from jaxsparse.select.choice import Reason, choosers
from jaxsparse.select.config import override
from jaxsparse.select.variants import OPS, SINGLE

PLATFORM = {"gpu": "cuda"}.get(jax.default_backend(), jax.default_backend())


def names(op):
    return [v.name for v in js.variants(op) if v.platform == PLATFORM]


@pytest.mark.parametrize("op", ["masked_conv", "masked_matmul", "pruned_matmul", "pruned_conv"])
def test_dense_is_listed_once_and_has_no_number(op):
    found = [v for v in js.variants(op) if v.platform == PLATFORM and v.name == "dense"]
    assert [v.number for v in found] == [-1]
    assert len(set(names(op))) == len(names(op))


def test_listed_executors_can_be_asked_for(rng):
    w = rng.standard_normal((64, 64)).astype(np.float32)
    w[rng.random((64, 64)) < 0.9] = 0
    weight = js.pruned.inspect(w)
    x = jnp.asarray(rng.standard_normal((256, 64)), jnp.float32)
    against = js.explain(lambda a: js.pruned_matmul(a, weight), x).calls[0].against
    ran = set()
    for name in names("pruned_matmul"):
        with js.config(variant=name):
            if name in against:
                with pytest.raises(ValueError, match=f"variant='{name}'"):
                    js.pruned_matmul(x, weight)
            else:
                call = js.explain(lambda a: js.pruned_matmul(a, weight), x).calls[0]
                ran.add(call.variant(0))
                assert call.variant(0) == name
    assert {"dense"} < ran


def test_an_op_without_variants_is_named():
    with pytest.raises(ValueError, match="op='nothing' is not one of affected_index, "):
        js.variants("nothing")


def test_every_op_is_known_in_every_build():
    for op in OPS:
        assert all(v.op == op for v in js.variants(op))


@pytest.mark.parametrize("op", SINGLE)
def test_an_op_that_has_one_way_lists_nothing(op):
    assert js.variants(op) == []


@pytest.mark.parametrize("op", sorted({*OPS} - {"masked_conv_dkernel"}))
def test_every_op_lists_its_variants(op):
    assert names(op)
    assert op in choosers()


def test_a_dense_layer_is_known_by_its_own_name():
    x, w, mask = jnp.ones((2, 5, 8)), jnp.ones((8, 16)), jnp.ones((2, 5), bool)

    def layer(x):
        return js.masked_dense(x, w, mask)

    assert [c.op for c in js.explain(layer, x).calls] == ["masked_dense"]
    variant = next(v for v in js.variants("masked_dense") if v.platform == PLATFORM)
    image = jnp.ones((1, 4, 5, 8))
    kernel, pixels = jnp.ones((1, 1, 8, 16)), jnp.ones((1, 4, 5), bool)
    for name in (variant._replace(name="dense"), "dense"):
        with js.config(variant=name, selection="static"):
            call = js.explain(layer, x).calls[0]
            other = js.explain(lambda x: js.masked_conv(x, kernel, pixels), image).calls[0]
        assert call.choice is not None
        assert call.choice.reason is Reason.DEMANDED
        assert other.choice is not None
        assert (other.choice.reason is Reason.DEMANDED) == isinstance(name, str)
    with (
        js.config(variant=variant._replace(name="nothing")),
        pytest.raises(ValueError, match=r"masked_dense: js\.config.*'nothing'"),
    ):
        layer(x)


def test_kept_matmul_is_known_by_its_own_name():
    """Once, also where its gradient lays out the matrix again."""
    kept = js.kept_blocks(np.eye(2, dtype=bool), (16, 16), (8, 8))
    w = jnp.ones((16, 16))

    def loss(values):
        return js.kept_matmul(values, kept, w).sum()

    calls = js.explain(jax.grad(loss), kept.take(w)).calls
    assert [(c.op, c.counts) for c in calls] == [("kept_matmul", [2])]
    name = names("kept_matmul")[-1]
    variant = next(
        v for v in js.variants("kept_matmul") if (v.platform, v.name) == (PLATFORM, name)
    )
    with js.config(variant=variant, selection="static"):
        mine = js.explain(loss, kept.take(w)).calls[0].choice
        other = js.explain(lambda w: js.masked_matmul(w, w), w).calls[0].choice
    assert mine is not None
    assert mine.reason is Reason.DEMANDED
    assert other is not None
    assert other.reason is not Reason.DEMANDED


def test_ways_through_bounded_layers_are_chosen_and_can_be_asked_for():
    layers = [js.bounded.inspect(np.eye(8), 0.0, 1.0)] * 2
    network, x = js.bounded.network(layers), jnp.ones((3, 8), jnp.float32)
    calls = {
        "bounded_matmul": lambda x: js.bounded_matmul(x, layers[0]),
        "bounded_network": network,
    }
    for op, function in calls.items():
        free = js.explain(function, x).calls[0]
        assert free.op == op
        assert free.choice is not None
        assert free.choice.first in names(op)
        chosen = next(
            v for v in js.variants(op) if (v.platform, v.name) == (PLATFORM, free.choice.first)
        )
        with js.config(variant=chosen):
            again = js.explain(function, x)
        assert again.calls[0].choice is not None
        assert again.calls[0].choice.reason is Reason.DEMANDED
        np.testing.assert_array_equal(again.result.materialize(), x)
        with override(variant="a name alone does not speak to it"):
            assert js.explain(function, x).calls[0].choice == free.choice
    asked = js.explain(lambda x: js.bounded_matmul(x, layers[0], dataflow="converged"), x)
    assert asked.calls[0].choice is not None
    assert (asked.calls[0].choice.first, asked.calls[0].choice.reason) == (
        "converged",
        Reason.ASKED,
    )


def test_ways_of_a_gpu_through_a_layer():
    """By the sizes: few entries of many values go row by row, but few images do not."""

    def first(batch, n_in, entries, **change):
        sizes = batch, n_in, 1024, 1024, entries
        problem = BoundedProblem("cuda", *sizes, 32, True)
        return candidates(dataclasses.replace(problem, **change)).names[0]

    assert first(60_000, 1024, 1024 * 4) == "row"
    assert first(60_000, 1024, 1024 * 32) == "column"
    assert first(60, 1024, 1024 * 4) == "column"
    assert first(60_000, 50_000, 1024 * 4) == "column"  # a row's values do not fit
    assert first(60_000, 1024, 1024 * 4, dataflow="slab") == "slab"
