"""Many tokens on a GPU, without one: what is lowered, and when lists or dense products run."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsparse as js
from jaxsparse.ops.sparse_ffn import listed, native, run
from jaxsparse.ops.sparse_ffn.params import FfnParams
from jaxsparse.select.choice import Reason
from jaxsparse.select.select import choose
from jaxsparse.select.sparse_ffn.chooser import CHUNK, GROUP, OP, ROOM, FfnProblem
from jaxsparse.select.table import Rung

PARAMS = FfnParams("relu2", 0, "default")
SIZES = 16384, 2048, 5632, 2048


def problem(sizes=SIZES, gated=True, dtype="bfloat16", top_k=0):
    return FfnProblem("cuda", sizes, gated, top_k, dtype, "default")


def lowered(tokens, d, f, out, gated, p=PARAMS):
    shapes = {"x": (tokens, d), "w_up": (d, f), "w_gate": (d, f), "w_down": (f, out)}
    given = {name: jax.ShapeDtypeStruct(s, jnp.bfloat16) for name, s in shapes.items()}
    if not gated:
        given["w_gate"] = None
    traced = jax.jit(functools.partial(run._native, p, "cuda")).trace(*given.values())
    return traced.lower(lowering_platforms=("cuda",)).as_text()


@pytest.mark.parametrize("gated", [False, True])
def test_lowers_for_cuda(gated):
    with js.config(variant="lists"):
        text = lowered(*SIZES, gated)
    assert text.count("@jaxsparse_sparse_ffn_lists(") == 1
    assert text.count("@jaxsparse_sparse_ffn_listed(") == 1
    assert text.count("stablehlo.case") == 1
    lists = "tensor<2048x11x128xui16>", "tensor<2048x11x1024xbf16>", "tensor<2048x11x2xi32>"
    assert all(each in text for each in lists)
    told = f"rectified = {str(gated).lower()}, squared = {str(gated).lower()}"
    assert told in text


def test_lowers_where_lists_are_demanded():
    """One switch is left: whether the lists have room."""
    with js.config(variant="lists"):
        text = lowered(40, 24, 520, 64, gated=True)
    assert text.count("@jaxsparse_sparse_ffn_listed(") == 1
    assert text.count("stablehlo.case") == 1
    for setting in ({}, {"variant": "dense"}):
        with js.config(**setting):
            text = lowered(*SIZES, gated=True)
        assert "jaxsparse" not in text.replace("jit__native", "")
        assert "stablehlo.case" not in text


def test_choices():
    found = choose(OP, problem())
    assert (found.how, found.first, found.names) == ("static", "dense", ("dense", "lists"))
    assert found.reason is Reason.DENSE_FIRST
    assert choose(OP, problem(dtype="float32")).names == ("dense",)
    assert choose(OP, problem((16384, 2048, 5636, 2048))).names == ("dense",)
    assert choose(OP, problem((2**20, 2048, 5632, 2048))).names == ("dense",)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"dtype": "float32"}, "float32: the kernels for a GPU list many tokens in 16-bit dtypes"),
        ({"sizes": (16384, 2048, 5636, 2048)}, "must be multiples of 8"),
        ({"sizes": (2**20, 2048, 5632, 2048)}, "1048576 tokens by 5632 are more lists than"),
    ],
)
def test_what_the_lists_do_not_take(changed, why):
    with js.config(variant="lists"):
        if jax.default_backend() == "cpu":  # a variant is demanded of this machine's platform
            assert why in run.against(problem(**changed))["lists"]
        else:
            with pytest.raises(ValueError, match=why):
                choose(OP, problem(**changed))


def fake_lists(a, *, rectified=False, squared=False):
    """Only the counts are right."""
    a = jax.nn.relu(a) if rectified else a
    rows, columns = -(-a.shape[0] // GROUP), -(-a.shape[1] // CHUNK)
    there = jnp.zeros((rows * GROUP, columns * CHUNK), bool)
    there = there.at[: a.shape[0], : a.shape[1]].set(a != 0)
    there = there.reshape(rows, GROUP, columns, CHUNK)
    counts = jnp.stack([there.any(1).sum(-1), there.sum((1, 3))], -1).astype(jnp.int32)
    return native.Lists(jnp.zeros((), jnp.uint16), jnp.zeros((), a.dtype), counts)


@pytest.mark.parametrize(
    "rungs", [(Rung(0.02, "lists"), Rung(1.0, "dense")), (Rung(1.0, "lists"),)]
)
def test_dense_products_run_where_a_list_has_no_room(monkeypatch, rng, rungs):
    """The product of lists is a fake, whose result says that it ran."""

    def ran(h, b, rows):
        return jnp.full((rows, b.shape[1]), 7, b.dtype)

    monkeypatch.setattr(native, "lists", fake_lists)
    monkeypatch.setattr(native, "listed", ran)
    sizes = (24, 0, 4 * CHUNK, 8)
    choice = dataclasses.replace(choose(OP, problem()), rungs=rungs)
    product = jax.jit(functools.partial(listed.product, PARAMS, problem(sizes), choice))
    a = np.zeros((24, 4 * CHUNK), np.float32)
    b = rng.standard_normal((4 * CHUNK, 8)).astype(jnp.bfloat16)
    a[3, CHUNK : CHUNK + ROOM] = 1
    np.testing.assert_array_equal(product(jnp.asarray(a, jnp.bfloat16), b), 7)
    a[4, CHUNK + ROOM] = 1  # of the same list
    got = product(jnp.asarray(a, jnp.bfloat16), b)
    np.testing.assert_allclose(got.astype(np.float32), a @ b.astype(np.float32), atol=0.2)


@pytest.mark.parametrize("shape", [(3, 8), (24, 520), (16, 1024), (9, 1000)])
def test_count_says_all_where_a_list_has_no_room(rng, shape):
    h = rng.random(shape) < 0.02
    count = int(h.sum())
    assert int(listed.count_of(jnp.asarray(h, jnp.bfloat16), jnp.int32(count))) == count
    h[-1, : ROOM + 1] = True
    fits = shape[1] <= ROOM
    count = int(h.sum())
    found = int(listed.count_of(jnp.asarray(h, jnp.bfloat16), jnp.int32(count)))
    assert found == (count if fits else h.size)
    fake = fake_lists(jnp.asarray(h, jnp.bfloat16))
    assert bool(fake.fit) == fits
    assert int(fake.active) == count
