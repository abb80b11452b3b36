"""The snippets of the pages about layers, run as they are written."""

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsparse as js

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def exact():
    """A GPU's default is TF32."""
    with jax.default_matmul_precision("highest"):
        yield


def run_first_block(page, **names):
    """What the first block of Python on a page defines, where `names` are given."""
    code = (ROOT / "docs" / page).read_text().split("```python\n")[1].split("```")[0]
    known = {"functools": functools, "jax": jax, "jnp": jnp, "js": js, **names}
    exec(compile(code, page, "exec"), known)
    return known


def test_moe_without_the_layer(rng):
    tokens = jnp.asarray(rng.standard_normal((30, 12), np.float32))
    layer = js.nn.linen.MoE(5, 20, top_k=2)
    variables = layer.init(jax.random.key(0), tokens)
    found = run_first_block("moe.md", tokens=tokens, top_k=2, num_experts=5, **variables["params"])
    np.testing.assert_allclose(found["y"], layer.apply(variables, tokens)[0], atol=1e-5)


def test_ragged_batch(rng):
    x = jnp.asarray(rng.standard_normal((2, 6, 8), np.float32))
    lengths = jnp.asarray([2, 5])
    found = run_first_block("ragged.md", x=x, lengths=lengths)
    kept = js.lengths_mask(lengths, 6)[..., None]
    dense = jax.nn.gelu(x @ found["variables"]["params"]["kernel"])
    np.testing.assert_allclose(found["y"], jnp.where(kept, dense, 0.0), atol=1e-5)


@pytest.mark.parametrize("by_hand", [True, False])
def test_sparse_training(rng, monkeypatch, by_hand):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from sparse_training_model import magnitude_mask

    w = jnp.asarray(rng.standard_normal((70, 130), np.float32))
    h = jnp.asarray(rng.standard_normal((130, 9), np.float32))
    if by_hand:
        found = run_first_block(
            "sparse_training.md", magnitude_mask=magnitude_mask, w=w, h=h, sparsity=0.5
        )
        mask, y = found["mask"], found["y"]
    else:
        mask = js.prune.magnitude(w, 0.5, (32, 64))[::32, ::64]
        y = js.masked_matmul(w, h, a_mask=mask, granularity=(32, 64))
    np.testing.assert_array_equal(mask, magnitude_mask(w, jnp.float32(0.5), (32, 64)))
    kept = np.repeat(np.repeat(mask, 32, 0), 64, 1)[:70, :130]
    np.testing.assert_allclose(y, np.where(kept, w, 0) @ h, atol=1e-4)
