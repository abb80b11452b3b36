"""A mesh of two axes splits two axes of an op: its rows or images over one, its outputs over the
other. Gradients are sharded as the operands are, each with the one sum that it needs.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxsparse as js

pytestmark = pytest.mark.skipif(len(jax.devices()) < 4, reason="needs four devices")
MASK = np.random.default_rng(1).random((4, 6, 6)) < 0.5
BLOCKS = np.random.default_rng(2).random((4, 8)) < 0.5
SIZES = np.array([3, 2], np.int32)
#: The call, the operands' shapes and how they are split, and how the result is.
CASES = {
    "masked_conv": (
        lambda x, k, m: js.masked_conv(x, k, m, activation="relu"),
        ((4, 6, 6, 3), P("rows")),
        ((3, 3, 3, 4), P(None, None, None, "outputs")),
        (MASK, P("rows")),
        P("rows", None, None, "outputs"),
    ),
    "masked_dense": (
        js.masked_dense,
        ((4, 6, 6, 3), P("rows")),
        ((3, 4), P(None, "outputs")),
        (MASK, P("rows")),
        P("rows", None, None, "outputs"),
    ),
    "masked_matmul": (
        lambda a, b, m: js.masked_matmul(a, b, a_mask=m, granularity=(2, 2)),
        ((8, 16), P("rows")),
        ((16, 6), P(None, "outputs")),
        (BLOCKS, P("rows")),
        P("rows", "outputs"),
    ),
    "grouped_matmul": (
        js.grouped_matmul,
        ((6, 8), P()),
        ((2, 8, 6), P(None, None, "outputs")),
        (SIZES, P()),
        P(None, "outputs"),
    ),
}


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=["auto", "explicit"])
@pytest.mark.parametrize("name", CASES)
def test_rows_and_outputs(name, kind, rng):
    call, (x, by_x), (w, by_w), (mask, by_mask), by_y = CASES[name]
    x, w = (jnp.asarray(rng.standard_normal(shape), jnp.float32) for shape in (x, w))

    def run(x, w, mask, ct):
        y, pull = jax.vjp(lambda x, w: call(x, w, mask), x, w)
        return y, *pull(ct)

    ct = jnp.asarray(rng.standard_normal(jax.eval_shape(call, x, w, mask).shape), jnp.float32)
    devices = jax.devices()[:4]
    mesh = jax.make_mesh((2, 2), ("rows", "outputs"), (kind, kind), devices=devices)
    pairs = (x, by_x), (w, by_w), (mask, by_mask), (ct, by_y)
    split = [jax.device_put(v, NamedSharding(mesh, by)) for v, by in pairs]
    compiled = jax.jit(run).lower(*split).compile()
    text = str(compiled.as_text())
    assert not [op for op in ("all-gather", "all-to-all", "collective-permute") if op in text]
    got, want = compiled(*split), run(x, w, mask, ct)
    for value, other, by in zip(got, want, (by_y, by_x, by_w), strict=True):
        np.testing.assert_allclose(value, other, rtol=1e-4, atol=1e-4)
        assert value.sharding.is_equivalent_to(NamedSharding(mesh, by), value.ndim), name
