"""The package's pytrees in nnx modules, in flax's msgpack checkpoints and in orbax's."""

import dataclasses
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx, serialization

import jaxsparse as js

RNG = np.random.default_rng(0)
WEIGHT = RNG.standard_normal((8, 8)).astype(np.float32) * (RNG.random((8, 8)) < 0.4)
MASK = RNG.random((1, 6, 7)) < 0.4
BLOCKS = RNG.random((2, 1, 20, 32)) < 0.4
X = jnp.asarray(RNG.random((3, 8)), jnp.float32)


def layer(seed=0, bias=-0.1):
    weight = np.random.default_rng(seed).standard_normal((8, 8)).astype(np.float32)
    return js.bounded.inspect(weight, bias, 2.0)


#: Name -> (value, another of the same arrays' shapes and the same static part, how it is used).
VALUES = {
    "TileIndex": (
        js.tile_index(MASK, (2, 2)),
        js.tile_index(~MASK, (2, 2)),
        lambda index: js.masked_conv(
            jnp.ones((1, 6, 7, 2)), jnp.ones((1, 1, 2, 2)), index, precision="highest"
        ),
    ),
    "BlockMask": (
        js.BlockMask.from_dense(BLOCKS, 16),
        js.BlockMask.from_dense(BLOCKS[..., ::-1], 16),
        lambda mask: mask.to_dense().astype(jnp.float32),
    ),
    "PrunedWeight": (
        js.pruned.inspect(WEIGHT),
        js.pruned.inspect(WEIGHT * 3),
        lambda pruned: js.pruned_matmul(X, pruned),
    ),
    "Layer": (
        layer(),
        layer().with_values(layer().weights * 2),
        lambda layer: js.bounded_matmul(X, layer).materialize(),
    ),
    "Network": (
        js.bounded.network([layer(0), layer(1)]),
        js.bounded.network([layer(1), layer(0)]),
        lambda net: net(X).materialize(),
    ),
}
VALUES["Layer"] = (VALUES["Layer"][1].with_values(layer().weights), *VALUES["Layer"][1:])


def same(got, want):
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


class Holder(nnx.Module):
    def __init__(self, value, scale=1.0):
        self.value, self.scale = value, nnx.Param(jnp.full((), scale))

    def __call__(self, use):
        return use(self.value) * self.scale


@pytest.mark.parametrize("name", VALUES)
def test_data_of_an_nnx_module(name):
    value, other, use = VALUES[name]
    model, want = Holder(value, 2.0), 2.0 * use(value)
    graph, params, rest = nnx.split(model, nnx.Param, ...)
    merged = nnx.merge(graph, params, rest)
    same(merged.value, value)

    @nnx.jit
    def step(m):
        m.scale[...] += 1
        return m(use)

    np.testing.assert_array_equal(step(merged), want * 1.5)
    np.testing.assert_array_equal(merged.scale[...], 3)
    second = Holder(nnx.Variable(other))  # nnx.update replaces variables, not the data of a module
    nnx.update(second, nnx.state(Holder(nnx.Variable(value), 2.0)))
    same(second.value.get_value(), value)
    if name != "Network":  # an op takes the variable itself
        np.testing.assert_array_equal(second(use), want)


@pytest.mark.parametrize("name", VALUES)
def test_msgpack(name):
    value, other, _ = VALUES[name]
    data = serialization.to_bytes({"a": [value]})
    same(serialization.from_bytes({"a": [other]}, data), {"a": [value]})
    with pytest.raises(ValueError, match=f"has .* where the target has a {name}"):
        serialization.from_bytes({"a": [other]}, serialization.to_bytes({"a": [{"b": X}]}))


@pytest.mark.parametrize("name", VALUES)
def test_orbax(name, tmp_path):
    """As a pytree, and as flax's state dict, which also holds what is static."""
    ocp = pytest.importorskip("orbax.checkpoint")
    value, other, _ = VALUES[name]
    with ocp.StandardCheckpointer() as saver:
        saver.save(tmp_path / "tree", {"a": value})
        saver.save(tmp_path / "state", serialization.to_state_dict({"a": value}))
        saver.wait_until_finished()
        same(saver.restore(tmp_path / "tree", {"a": other}), {"a": value})
        state = saver.restore(tmp_path / "state")
    same(serialization.from_state_dict({"a": other}, state), {"a": value})


def pruned_elsewhere():
    weight = np.zeros_like(WEIGHT)
    weight.reshape(-1)[: np.count_nonzero(WEIGHT)] = 1
    return js.pruned.inspect(weight)


OTHERS = {
    "tile": ("TileIndex", lambda: js.tile_index(MASK, (2, 4)), r"tile=\[2, 2\].*tile=\[2, 4\]"),
    "capacity": ("TileIndex", lambda: js.tile_index(MASK, (2, 2), capacity=3), "capacity=12"),
    "pattern": ("PrunedWeight", pruned_elsewhere, "pattern="),
    "kind": (
        "PrunedWeight",
        lambda: js.pruned.inspect(WEIGHT[None, None], kind="conv"),
        "kind='matmul'.*kind='conv'",
    ),
    "proofs": ("Layer", lambda: layer(), "zero_stays=False.*zero_stays=True"),
    "depth": ("Network", lambda: js.bounded.network([layer()]), "has n_in|has depth=2"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_static_part_that_differs_is_named(name):
    kind, make, words = OTHERS[name]
    data = serialization.to_bytes({"a": VALUES[kind][0]})
    with pytest.raises(ValueError, match=f"a: the checkpoint's {kind} has .*{words}"):
        serialization.from_bytes({"a": make()}, data)


def test_arrays_of_another_shape_or_dtype_are_named():
    pruned = js.pruned.inspect(WEIGHT)
    data = serialization.to_bytes({"a": pruned})
    kept = np.count_nonzero(WEIGHT)
    with pytest.raises(ValueError, match=rf"a/values: .* float32\[{kept}\], .* bfloat16"):
        serialization.from_bytes({"a": pruned.astype(jnp.bfloat16)}, data)
    state = serialization.to_state_dict(pruned)
    with pytest.raises(ValueError, match="static: these are not static fields"):
        serialization.from_state_dict(pruned, state | {"static": np.zeros(3, np.uint8)})


def test_how_a_network_is_run_is_free():
    saved = js.bounded.network([layer()], implementation="reference")
    got = serialization.from_bytes(js.bounded.network([layer()]), serialization.to_bytes(saved))
    assert got.implementation is None
    same(dataclasses.replace(got, implementation=saved.implementation), saved)


def test_flax_may_be_imported_later():
    code = (
        "import jaxsparse as js\nfrom flax import nnx, serialization\nimport numpy as np\n"
        "index = js.token_index(np.ones((2, 3), bool))\n"
        "print(len(serialization.to_bytes(index)) > 0, nnx.is_data(index))\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout == "True True\n", found.stderr
