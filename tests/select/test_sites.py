"""`watch` finds every choice among variants, and can run each again."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsparse as js
from jaxsparse.index import TileIndex
from jaxsparse.ops.masked_conv.operands import Operands
from jaxsparse.select.sites import watch, watching

PLATFORM = "cuda" if jax.default_backend() == "gpu" else "cpu"


def here(sites):
    return [s for s in sites if s.problem.platform == PLATFORM]


@pytest.fixture
def arrays(rng):
    x = jnp.asarray(rng.standard_normal((2, 9, 10, 8), np.float32))
    kernel = jnp.asarray(rng.standard_normal((3, 3, 8, 16), np.float32))
    return x, kernel, jnp.asarray(rng.random((2, 9, 10)) < 0.4)


def test_a_site_holds_what_the_op_was_traced_with(arrays):
    site = here(watch(js.masked_conv, *arrays))[0]
    assert site.problem.op == "masked_conv"
    assert site.problem.features["outputs"] == 16
    assert "dense" in site.branches
    assert site.operands[0].shape == (2, 9, 10, 8)
    assert any(isinstance(o, TileIndex) for o in site.operands)


def test_a_branch_runs_again(arrays):
    x, kernel, mask = arrays
    index = js.tile_index(mask)
    with jax.default_matmul_precision("highest"):
        site = here(watch(js.masked_conv, x, kernel, index))[0]
        want = js.masked_conv(x, kernel, index)
        for name in (next(iter(site.branches)), "dense"):
            got = jax.jit(site.branches[name])(*Operands(x, kernel, index))
            np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-3)


# Not in the op suite: what js.explain says of them.
def test_vmap_and_grad_are_seen(arrays):
    x, kernel, mask = arrays
    batched = here(watch(jax.vmap(lambda m: js.masked_conv(x, kernel, m)), jnp.stack([mask] * 3)))
    assert batched[-1].problem.features["pixels"] == 3 * 180
    gradient = jax.grad(lambda x, k: js.masked_conv(x, k, mask).sum())
    assert {s.problem.features["outputs"] for s in here(watch(gradient, x, kernel))} == {16, 8}


def test_nothing_is_watched_outside(arrays):
    with watching() as sites:
        pass
    js.masked_conv(*arrays)
    assert sites == []
    assert watch(jnp.sum, arrays[0]) == []
