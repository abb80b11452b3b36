"""Axes that are summed over: the shards' results are added up, once, in float32."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxsparse as js

pytestmark = pytest.mark.skipif(len(jax.devices()) < 4, reason="needs four devices")
MASK = np.random.default_rng(1).random((2, 6, 6)) < 0.5
BLOCKS = np.random.default_rng(2).random((4, 8)) < 0.5
CASES = {
    "masked_conv": (
        lambda x, k: js.masked_conv(x, k, MASK),
        ((2, 6, 6, 8), P(None, None, None, "s")),
        ((3, 3, 8, 4), P(None, None, "s")),
    ),
    "masked_dense": (
        lambda x, w: js.masked_dense(x, w, MASK),
        ((2, 6, 6, 8), P(None, None, None, "s")),
        ((8, 4), P("s")),
    ),
    "grouped_matmul": (
        lambda x, w: js.grouped_matmul(x, w, jnp.array([3, 2])),
        ((6, 8), P(None, "s")),
        ((2, 8, 5), P(None, "s")),
    ),
    "masked_matmul": (
        lambda a, b: js.masked_matmul(a, b, a_mask=BLOCKS, granularity=(2, 2)),
        ((8, 16), P(None, "s")),
        ((16, 5), P("s")),
    ),
}


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=["auto", "explicit"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", CASES)
def test_the_contracted_axis(name, dtype, kind, rng):
    call, *operands = CASES[name]
    arrays = [jnp.asarray(rng.standard_normal(shape), dtype) for shape, _ in operands]
    mesh = jax.make_mesh((4,), ("s",), (kind,), devices=jax.devices()[:4])
    split = [
        jax.device_put(v, NamedSharding(mesh, spec))
        for v, (_, spec) in zip(arrays, operands, strict=True)
    ]
    compiled = jax.jit(call).lower(*split).compile()
    text = str(compiled.as_text())
    assert "all-reduce" in text
    assert "all-gather" not in text
    got, want = compiled(*split), call(*arrays)
    assert got.dtype == want.dtype
    tolerance = 1e-5 if dtype == "float32" else 2e-2
    np.testing.assert_allclose(
        np.asarray(got, np.float32), np.asarray(want, np.float32), rtol=tolerance, atol=tolerance
    )


def test_blocks_are_not_cut(rng):
    """Six columns of blocks are not split over four devices, though their entries could be."""
    a, b = rng.random((4, 24), np.float32), rng.random((24, 4), np.float32)
    mask = rng.random((2, 6)) < 0.5
    mesh = jax.make_mesh((4,), ("s",), (AxisType.Explicit,), devices=jax.devices()[:4])
    split = jax.device_put(a, NamedSharding(mesh, P(None, "s")))
    with pytest.raises(ValueError, match=r"a axis -1 is sharded over .* 4 shards do not divide 6"):
        js.masked_matmul(split, b, a_mask=mask, granularity=(2, 4))
