"""The example that prunes and fine-tunes a small CNN, at its small size."""

import importlib
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import jaxsparse as js

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield importlib.import_module("pruned_cnn")
    for name in ("pruned_cnn", "models.common"):
        sys.modules.pop(name, None)


def test_sparse_and_dense_forms_agree(example, rng):
    params = example.initial(8)
    sparse = example.sparse_parameters(params, js.prune_model(params, 0.8))
    kinds = [isinstance(entry["kernel"], js.PrunedWeight) for entry in sparse.values()]
    assert any(kinds)
    assert not all(kinds)
    x = rng.random((5, 8, 8, 1), np.float32)
    want = example.network(example.as_dense(sparse), x)
    np.testing.assert_allclose(jax.jit(example.network)(sparse, x), want, atol=2e-4)


@pytest.fixture
def optimised():
    """As a user's XLA compiles: a training of many steps pays for LLVM's expensive passes."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.mark.slow
@pytest.mark.usefixtures("optimised")
def test_fine_tuning_brings_the_accuracy_back(example, tmp_path, monkeypatch):
    monkeypatch.delenv("JAXSPARSE_DATA", raising=False)
    with jax.numpy_dtype_promotion("standard"):  # optax counts its steps in int32
        result = example.run(True, tmp_path)
    assert result.tuned > result.dense - 2.0
    assert result.tuned > result.pruned
    assert (tmp_path / "pruned_cnn.png").is_file()
