"""Forward mode on Explicit axes, and meshes of Explicit and Auto axes: the same results and types,
and no operand is gathered.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxsparse as js

pytestmark = pytest.mark.skipif(len(jax.devices()) < 4, reason="needs four devices")

RNG = np.random.default_rng(0)
IMAGES, ROWS = RNG.standard_normal((8, 6, 6, 4), np.float32), RNG.random((8, 4), np.float32)
MASK = RNG.random((8, 6, 6)) < 0.5
KERNEL, W = RNG.standard_normal((3, 3, 4, 8), np.float32), RNG.standard_normal((4, 8), np.float32)
PRUNED = js.pruned.inspect(W * (RNG.random(W.shape) < 0.5))
LAYERS = [
    js.bounded.inspect(sp.random(n, 8, 0.6, random_state=n, dtype=np.float32), -0.1, 1.0)
    for n in (4, 8)
]
NETWORK = js.bounded.network(LAYERS)

OPS = {
    "masked_conv": (lambda x, m: js.masked_conv(x, jnp.asarray(KERNEL), m), IMAGES),
    "masked_dense": (lambda x, m: js.masked_dense(x, jnp.asarray(W), m), IMAGES),
    "masked_matmul": (
        lambda x, m: js.masked_matmul(x, jnp.asarray(W), a_mask=m[..., None], granularity=(1, 4)),
        IMAGES,
    ),
    "pruned_matmul": (lambda x, m: js.pruned_matmul(x, PRUNED), ROWS),
    "bounded_matmul": (lambda x, m: js.bounded_matmul(x, LAYERS[0]).materialize(), ROWS),
    "bounded_network": (lambda x, m: NETWORK(x).materialize(), ROWS),
}
E, A = AxisType.Explicit, AxisType.Auto
#: Mesh axes, and how the images are split over them.
MESHES = {
    "explicit": ((4,), ("b",), (E,), P("b")),
    "over the explicit axis": ((2, 2), ("b", "m"), (E, A), P("b")),
    "over both axes": ((2, 2), ("b", "m"), (E, A), P(("b", "m"))),
    "over the auto axis": ((2, 2), ("b", "m"), (A, E), P("b")),
}


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("name", OPS)
def test_forward_mode_and_gradients(name, mesh):
    function, x = OPS[name]
    shape, axes, kinds, spec = MESHES[mesh]
    made = jax.make_mesh(shape, axes, kinds, devices=jax.devices()[:4])
    t = np.ones_like(x)

    def steps(x, t, m):
        def run(x):
            return function(x, m)

        y, tangent = jax.jvp(run, (x,), (t,))
        along = jax.linearize(run, x)[1](t)
        slope, second = jax.jvp(jax.grad(lambda x: (run(x) ** 2).sum()), (x,), (t,))
        return y, tangent, along, slope, second

    want = jax.jit(steps)(x, t, MASK)
    with jax.set_mesh(made):
        args = [jax.device_put(v, NamedSharding(made, spec)) for v in (x, t, MASK)]
        compiled = jax.jit(steps).lower(*args).compile()
        got = compiled(*args)
    assert not re.search(r"all-gather|all-to-all|collective-permute", compiled.as_text())
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)
        assert a.sharding.is_equivalent_to(NamedSharding(made, spec), a.ndim), a.sharding


def test_the_types_say_what_explicit_axes_split():
    made = jax.make_mesh((2, 2), ("b", "m"), (E, A), devices=jax.devices()[:4])
    with jax.set_mesh(made):
        x, m = (jax.device_put(v, NamedSharding(made, P(("b", "m")))) for v in (IMAGES, MASK))
        types = []
        jax.jit(lambda x, m: types.append(jax.typeof(OPS["masked_conv"][0](x, m)))).lower(x, m)
    assert types[0].sharding.spec == P("b", None, None, None)


def test_what_cannot_be_split_is_refused_on_a_mixed_mesh():
    made = jax.make_mesh((2, 2), ("b", "m"), (E, A), devices=jax.devices()[:4])
    with jax.set_mesh(made):
        rows = jax.device_put(IMAGES[:, :6], NamedSharding(made, P(None, "b")))
        with pytest.raises(ValueError, match=r"^masked_conv: x axis 1 is sharded over mesh axis"):
            js.masked_conv(rows, jnp.asarray(KERNEL), jnp.asarray(MASK))


@pytest.mark.parametrize("granularity", [(1, 4), (6, 2), (2, 1)])
def test_blocks_as_wide_as_an_axis(granularity):
    """A factor of one block, on Auto axes."""
    made = jax.make_mesh((4,), ("b",), (A,), devices=jax.devices()[:4])
    gm, gk = granularity
    mask = jnp.asarray(RNG.random((8, 6 // gm, 4 // gk)) < 0.6)
    mask = jnp.broadcast_to(mask[:, None], (8, 6, 6 // gm, 4 // gk))

    def run(x, mask):
        return js.masked_matmul(x, jnp.asarray(W), a_mask=mask, granularity=granularity)

    args = [jax.device_put(v, NamedSharding(made, P("b"))) for v in (IMAGES, mask)]
    np.testing.assert_allclose(jax.jit(run)(*args), run(IMAGES, mask), rtol=1e-3, atol=1e-4)
