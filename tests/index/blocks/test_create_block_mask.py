"""`create_block_mask`: what a mask function may be, and what is said of one that is not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsparse as js
from jaxsparse.index.blocks import evaluate


def dense(mask_mod, batch, heads, q_len, kv_len):
    b, h, q, k = np.ogrid[: batch or 1, : heads or 1, :q_len, :kv_len]
    return np.broadcast_to(mask_mod(b, h, q, k), (batch or 1, heads or 1, q_len, kv_len))


MODS = {
    "causal": lambda b, h, q, k: q >= k,
    "one axis": lambda b, h, q, k: k < 20,
    "everything": lambda b, h, q, k: np.bool_(True),
    "nothing": lambda b, h, q, k: False,
    "of heads": lambda b, h, q, k: (q - k) * (h + 1) % 3 == b,
}


@pytest.mark.parametrize("name", MODS)
@pytest.mark.parametrize("lead", [(None, None), (2, 3)], ids=str)
def test_functions(name, lead):
    made = js.create_block_mask(MODS[name], *lead, 50, 70, (16, 32))
    np.testing.assert_array_equal(made.to_dense(), dense(MODS[name], *lead, 50, 70))
    assert made.shape == (lead[0] or 1, lead[1] or 1, 50, 70)


def test_a_step_of_several_rows(monkeypatch):
    """Rows and blocks in steps that do not divide their number."""
    monkeypatch.setattr(evaluate, "STEP", 16 * 96 * 3)
    made = js.create_block_mask(MODS["of heads"], 2, 2, 70, 90, 16)
    np.testing.assert_array_equal(made.to_dense(), dense(MODS["of heads"], 2, 2, 70, 90))


def test_data_of_the_trace():
    """Inside jit, with a function that reads traced arrays: one compilation for every mask."""
    traces = []

    @jax.jit
    def run(document):
        traces.append(1)
        made = js.create_block_mask(
            lambda b, h, q, k: (document[b, q] == document[b, k]) & (q >= k),
            2, None, 48, 48, 16, partial_capacity=9,
        )  # fmt: skip
        return made.to_dense(), made.overflow

    for seed in range(3):
        document = np.sort(np.random.default_rng(seed).integers(0, 3, (2, 48)))
        found, overflow = run(document)
        want = (document[:, None, :, None] == document[:, None, None]) & np.tri(48, dtype=bool)
        if not overflow:
            np.testing.assert_array_equal(found, want)
        assert not (np.asarray(found) & ~want).any()
    assert len(traces) == 1


def test_errors():
    def make(mod, *rest, **more):
        return js.create_block_mask(mod, None, None, *rest, **more)

    causal = MODS["causal"]
    table = np.zeros((8, 8), bool)
    with pytest.raises(TypeError, match="mask_mod must be a function"):
        make(table, 8, 8)
    with pytest.raises(TypeError, match=r"asarray"):
        make(lambda b, h, q, k: table[q, k], 8, 8)
    with pytest.raises(TypeError, match="one bool array"):
        make(lambda b, h, q, k: q - k, 8, 8)
    with pytest.raises(ValueError, match="elementwise"):
        make(lambda b, h, q, k: jnp.asarray(table)[q], 8, 8)
    for size in (24, 8, 512, 0, (16, 16, 16), (16, 20)):
        with pytest.raises(ValueError, match="multiples of 16"):
            make(causal, 8, 8, size)
    for size in (16.0, "16", None, (16, True)):
        with pytest.raises(TypeError, match="multiples of 16"):
            make(causal, 8, 8, size)
    with pytest.raises(ValueError, match="q_len=-1"):
        make(causal, -1, 8)
    with pytest.raises(TypeError, match="kv_len"):
        make(causal, 8, 8.0)
    with pytest.raises(ValueError, match="partial_capacity=-1"):
        make(causal, 8, 8, partial_capacity=-1)
    with pytest.raises(ValueError, match=r"2\^31"):
        js.create_block_mask(causal, 64, 64, 2**14, 2**14, 16)


def test_errors_of_dense_masks():
    with pytest.raises(TypeError, match="!= 0"):
        js.BlockMask.from_dense(np.ones((1, 1, 4, 4)), 16)
    with pytest.raises(ValueError, match=r"\[B or 1, H or 1, T, S\]"):
        js.BlockMask.from_dense(np.ones((4, 4), bool), 16)
    with pytest.raises(ValueError, match=r"\(B, H, 2, 3\)"):
        js.BlockMask.from_block_bits(np.ones((1, 1, 2, 2), bool), 16, 20, 40)
    with pytest.raises(TypeError, match="!= 0"):
        js.BlockMask.from_block_bits(np.ones((1, 1, 2, 3)), 16, 20, 40)
    one = js.BlockMask.from_dense(np.ones((2, 1, 32, 32), bool), 16)
    with pytest.raises(TypeError, match="two BlockMasks"):
        one & np.ones((1, 1, 32, 32), bool)
    for other in ((np.ones((1, 1, 32, 32), bool), 32), (np.ones((3, 1, 32, 32), bool), 16)):
        with pytest.raises(ValueError, match="must agree"):
            one | js.BlockMask.from_dense(*other)


@pytest.mark.skipif(len(jax.devices()) < 4, reason="needs four devices")
def test_over_a_mesh():
    """On Auto axes the bits of a mask's blocks are gathered; Explicit ones are refused by name."""
    dense = np.random.default_rng(0).random((4, 2, 40, 40)) < 0.4
    split = jax.sharding.PartitionSpec("data")
    auto = jax.make_mesh((4,), ("data",), (jax.sharding.AxisType.Auto,))
    given = jax.device_put(dense, jax.sharding.NamedSharding(auto, split))
    with pytest.warns(RuntimeWarning, match="BlockMask: mask axis 0 .* numbered together"):
        made = jax.jit(lambda m: js.BlockMask.from_dense(m, 16))(given)
    np.testing.assert_array_equal(made.to_dense(), dense)
    explicit = jax.make_mesh((4,), ("data",), (jax.sharding.AxisType.Explicit,))
    with jax.set_mesh(explicit):
        lens, mask = (
            jax.device_put(x, jax.sharding.NamedSharding(explicit, split))
            for x in (np.arange(4), dense)
        )
        with pytest.raises(ValueError, match=r"mask is sharded over Explicit mesh axes \['data'\]"):
            js.BlockMask.from_dense(mask, 16)
        with pytest.raises(ValueError, match=r"kv_lens is sharded .* jax.sharding.reshard"):
            js.block_masks.lengths(lens, 40, 40, 16)
