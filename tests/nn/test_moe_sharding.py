"""A mixture of experts under plain jit on a mesh: each device routes its own tokens.

Not in the op suite: a layer, whose router and experts are several ops.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from ops.op_suite import assert_close

import jaxsparse as js
from jaxsparse import nn

pytestmark = pytest.mark.skipif(len(jax.devices()) < 4, reason="needs four devices")
KINDS = pytest.mark.parametrize(
    "kind", [AxisType.Auto, AxisType.Explicit], ids=["auto", "explicit"]
)
D, HIDDEN, EXPERTS = 8, 16, 4
#: The split of the tokens, that of the experts, options, and the collectives that it takes.
CASES = {
    "tokens and hidden features": (P("data"), {"h": "model"}, {}, {"all-reduce"}),
    "tokens of each list": (P(None, ("data", "model")), {}, {"activation": "relu"}, {"all-reduce"}),
    "tokens, experts over another axis": (P("data"), {"g": "model"}, {}, {"all-reduce"}),
    "tokens are sent": (
        P("data", "model"),
        {"g": "model"},
        {"expert_axis": "model"},
        {"all-reduce", "all-to-all"},
    ),
}


def mesh_of(kind):
    return jax.make_mesh((2, 2), ("data", "model"), (kind, kind), devices=jax.devices()[:4])


def spread(mesh, params, split):
    """The parameters with the experts g or the hidden features h over a mesh axis."""
    g, h = split.get("g"), split.get("h")
    specs = {"router": P(), "gate": P(g, None, h), "up": P(g, None, h), "down": P(g, h)}
    return {k: jax.device_put(v, NamedSharding(mesh, specs[k])) for k, v in params.items()}


def collectives(compiled):
    names = "all-gather", "all-reduce", "all-to-all", "collective-permute"
    return {name for name in names if f" {name}(" in compiled.as_text()}


def made(rng, dtype="float32", **options):
    layer = nn.linen.MoE(EXPERTS, HIDDEN, top_k=2, dtype=dtype, **options)
    x = jnp.asarray(rng.standard_normal((4, 8, D)), dtype)
    return layer, layer.init(jax.random.key(0), x)["params"], x


def loss(layer, params, x, mask):
    y, balance = layer.apply({"params": params}, x, mask)
    return jnp.sum(jnp.sin(y.astype(jnp.float32))) + balance, y


@KINDS
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name, kind, rng):
    spec, split, options, wanted = CASES[name]
    dtype = "bfloat16" if name == "tokens and hidden features" else "float32"
    layer, params, x = made(rng, dtype, **options)
    mask = jnp.asarray(rng.random(x.shape[:2]) < 0.8)
    mesh = mesh_of(kind)
    over = [jax.device_put(v, NamedSharding(mesh, spec)) for v in (x, mask)]
    run = jax.value_and_grad(functools.partial(loss, layer), (0, 1), has_aux=True)
    compiled = jax.jit(run).lower(spread(mesh, params, split), *over).compile()
    assert collectives(compiled) == wanted
    (total, y), gradients = compiled(spread(mesh, params, split), *over)
    for value in (y, gradients[1]):
        assert value.sharding.is_equivalent_to(over[0].sharding, 3)
    assert gradients[0]["up"].sharding.is_equivalent_to(
        spread(mesh, params, split)["up"].sharding, 3
    )
    (want, y_want), known = run(params, x, mask)
    assert_close(y, y_want, dtype)
    np.testing.assert_allclose(total, want, rtol=1e-2 if dtype == "bfloat16" else 1e-5)
    for a, b in zip(jax.tree.leaves(gradients), jax.tree.leaves(known), strict=True):
        assert_close(a, b, dtype, scale=4.0)


@KINDS
def test_tokens_and_experts_over_one_axis(kind, rng):
    """The layer is to be told; then `js.explain` says what is sent."""
    layer, params, x = made(rng)
    mesh = mesh_of(kind)
    params = spread(mesh, params, {"g": "data"})
    x = jax.device_put(x, NamedSharding(mesh, P("data")))
    apply = lambda layer: lambda p, x: layer.apply({"params": p}, x)[0]  # noqa: E731
    said = r"^MoE: \w+ axis 0 .* give the layer expert_axis="
    if kind == AxisType.Explicit:
        with pytest.raises(ValueError, match=said):
            jax.jit(apply(layer))(params, x)
    else:
        with pytest.warns(RuntimeWarning, match=said):
            jax.jit(apply(layer)).lower(params, x).compile()
    found = js.explain(apply(layer.copy(expert_axis="data")), params, x)
    (told,) = found.communication
    assert told.startswith("MoE: over mesh axis 'data' tokens are sent")
    assert [call.op for call in found.calls] == ["top_experts", "MoE"]
    with pytest.raises(ValueError, match=r"^expert_axis='expert': the mesh has axes"):
        apply(layer.copy(expert_axis="expert"))(params, x)


def test_forward_mode_vmap_and_nnx(rng):
    """Of tokens of one axis over Auto axes, against the layer on one device."""
    layer = nn.nnx.MoE(D, EXPERTS, HIDDEN, top_k=2, rngs=nnx.Rngs(0))
    graph, state = nnx.split(layer)
    x, dx = jnp.asarray(rng.standard_normal((2, 3, 8, D)), jnp.float32)
    over = NamedSharding(mesh_of(AxisType.Auto), P(None, ("data", "model")))

    @jax.jit
    def tangents(x, dx):
        one = lambda x: nnx.merge(graph, state)(x)[0]  # noqa: E731
        return jax.jvp(jax.vmap(one), (x,), (dx,))

    given = jax.device_put((x, dx), over)
    compiled = tangents.lower(*given).compile()
    assert not collectives(compiled)
    for got, want in zip(compiled(*given), tangents(x, dx), strict=True):
        assert got.sharding.is_equivalent_to(over, 3)
        assert_close(got, want, "float32", scale=2.0)


def test_what_is_not_split(rng):
    layer, params, x = made(rng, routing="expert_choice")
    mesh = mesh_of(AxisType.Explicit)
    whole = spread(mesh, params, {})
    over = jax.device_put(x, NamedSharding(mesh, P("data")))
    with pytest.raises(ValueError, match=r"^MoE: inputs axis 0 .* each expert chooses among all"):
        layer.apply({"params": whole}, over)
    with pytest.raises(ValueError, match=r"^routing='expert_choice': each expert chooses"):
        layer.apply({"params": spread(mesh, params, {"g": "data"})}, x)
    auto = jax.device_put(x, NamedSharding(mesh_of(AxisType.Auto), P(None, "data")))
    with pytest.warns(RuntimeWarning, match=r"^MoE: inputs axis 1 .* each expert chooses among"):
        jax.jit(layer.apply).lower({"params": params}, auto).compile()
    layer = made(rng)[0]
    router = jax.device_put(params["router"], NamedSharding(mesh, P(None, "model")))
    with pytest.raises(ValueError, match=r"^router float32.* keep it whole"):
        layer.apply({"params": whole | {"router": router}}, x)
    cut = jax.device_put(x, NamedSharding(mesh, P(None, None, "model")))
    with pytest.raises(ValueError, match=r"inputs axis 2 is sharded .* an expert reads all"):
        layer.apply({"params": whole}, cut)
    with pytest.raises(TypeError, match=r"^expert_axis=3; it takes a mesh axis's name"):
        made(rng, expert_axis=3)
