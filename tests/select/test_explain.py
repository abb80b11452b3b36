"""`js.explain` lists every op, in its own unit, and says what the other implementations lack."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

import jaxsparse as js
from jaxsparse.select.choice import Offer, Reason
from jaxsparse.select.config import override
from jaxsparse.select.problem import Problem
from jaxsparse.select.select import decide

LAYER = js.bounded.inspect(np.eye(4), 0.0, 1.0)
X = jnp.ones((3, 4), jnp.float32)
IDS = jnp.asarray([[0, 1], [1, -1]])


RHS, SIZES = jnp.ones((2, 4, 5)), jnp.asarray([1, 1])
HOME = "cpu" if jax.default_backend() == "cpu" else "cuda"


def routed(ids):
    return js.route(ids, 3)


def grouped(x):
    return js.grouped_matmul(x, RHS, SIZES)


def exchanged(x):
    """The rows of three tokens, on a mesh of one device."""
    mesh, spec = jax.make_mesh((1,), ("e",), axis_types=(AxisType.Auto,)), jax.P("e")
    routing = js.route(jnp.zeros((3, 1), jnp.int32), 1)
    send = lambda x, routing: js.dispatch(x, routing, "e")[0]  # noqa: E731
    return jax.shard_map(send, mesh=mesh, in_specs=(spec, spec), out_specs=spec)(x, routing)


def ringed(x):
    """Three queries, on a mesh of one device."""
    mesh, q = jax.make_mesh((1,), ("e",), axis_types=(AxisType.Auto,)), x[None, :, None]
    mask = js.BlockMask.from_block_bits(jnp.asarray([[[[True, False]]]]), 16, 3, 20)
    keys = jnp.zeros((1, 20, 1, 4))
    run = lambda q, k: js.ring_attention(q, k, k, mask, "e")  # noqa: E731
    return jax.shard_map(run, mesh=mesh, in_specs=jax.P(), out_specs=jax.P("e"))(q, keys)


TOKENS = jnp.asarray([[True, False, True]])
PACKING = js.pack_tokens(X[None], TOKENS)[1]
CALLS = {
    "tile_index": (js.tile_index, jnp.ones((1, 4, 5), bool), "20 of 20 tiles"),
    "route": (routed, IDS, "3 of 4 assignments (75.0 %), skipped 1"),
    "bounded_matmul": (lambda x: js.bounded_matmul(x, LAYER), X, "3 of 3 input segments"),
    "bounded_network": (js.bounded.network([LAYER, LAYER]), X, "2 layers"),
    "grouped_matmul": (grouped, X, "2 of 3 rows"),
    "masked_matmul": (lambda x: js.masked_matmul(x, x.T), X, "no mask: everything"),
    "masked_norm": (lambda x: js.masked_norm(x, TOKENS[0]), X, "2 of 3 positions"),
    "masked_pool": (
        lambda m: js.masked_pool(jnp.ones((1, 4, 5, 2)), m, 2),
        jnp.ones((1, 4, 5), bool),
        "20 of 20 positions",
    ),
    "pack_mask": (js.pack_mask, TOKENS, "bool[1, 3]"),
    "unpack_mask": (lambda w: js.unpack_mask(w, 3), jnp.ones((2, 1), jnp.uint32), "-> [2, 3]"),
    "token_index": (js.token_index, TOKENS, "2 of 3 tokens"),
    "pack_tokens": (lambda x: js.pack_tokens(x[None], TOKENS), X, "2 of 3 tokens"),
    "unpack_tokens": (lambda x: js.unpack_tokens(x[:3], PACKING), X, "-> [1, 3, 4]"),
    "dispatch": (exchanged, X, "to 1 devices"),
    "ring_attention": (ringed, X, "1 of 2 blocks (50.0 %), skipped 1"),
}


@pytest.mark.parametrize("op", CALLS)
def test_every_op_is_a_call_in_its_own_unit(op):
    function, array, text = CALLS[op]
    told = js.explain(function, array)
    assert [c.op for c in told.calls if c.op != "route" or op == "route"] == [op]
    assert text in str(told)
    assert "of 0" not in str(told)


def test_blocks_are_called_blocks():
    mask = jnp.asarray([[True, False]])
    told = js.explain(lambda x: js.masked_matmul(x, x.T, a_mask=mask, granularity=(3, 2)), X)
    assert "1 of 2 blocks" in str(told)


@pytest.mark.parametrize("dataflow", ["row", "converged"])
def test_a_call_inside_scan_and_grad(dataflow):
    def loss(x):
        y, _ = jax.lax.scan(
            lambda x, _: (js.bounded_matmul(x, LAYER, dataflow=dataflow).materialize(), None),
            x,
            length=2,
        )
        return y.sum()

    told = js.explain(jax.value_and_grad(loss), X)
    assert told.calls[0].op == "bounded_matmul"
    assert float(told.result[0]) == 12.0


def test_other_implementations_have_a_reason():
    mask = jnp.ones((1, 4, 5), bool)
    told = js.explain(lambda m: js.tile_index(m, implementation="reference"), mask).calls[0]
    assert told.implementation == "reference"
    assert "cuda" in told.against
    assert told.against["cpu" if jax.default_backend() == "cpu" else "cuda"] == (
        "implementation= asks for reference"
    )
    x = jnp.ones((1, 4, 5, 8))
    call = js.explain(js.masked_conv, x, jnp.ones((3, 3, 8, 8)), mask).calls[0]
    assert call.choice is not None
    ran = {rung.variant for rung in call.choice.rungs} | {c.variant for c in call.choice.candidates}
    not_run = {*call.against, *call.passed_over}
    assert set(call.choice.names) - ran <= not_run, "every variant has a reason"
    assert ran.isdisjoint(not_run)
    assert not {*call.against} & {*call.passed_over}
    assert str(call).count("possible, too; ") <= 2, "variants with the same reason share a line"
    plain = js.explain(js.tile_index, mask).calls[0]
    if plain.implementation != "reference":
        assert plain.against["reference"] == f"{plain.implementation} comes first"


def test_an_implementation_that_an_op_does_not_have():
    """Nor is `implementation=` said to ask for the one that it has."""
    call = js.explain(lambda x: js.masked_norm(x, TOKENS[0]), X).calls[0]
    assert call.implementation == "reference"
    assert call.against["cpu"] == "this op has no 'cpu' implementation"


def test_a_switch_without_measurements_says_so():
    problem = Problem("nothing", "cpu", "float32", {}, 10)
    with js.config(selection="switch"):
        choice = decide(problem, Offer(("first", "second")))
    assert choice.reason is Reason.UNMEASURED
    assert choice.device == "cpu"
    assert choice.rungs[0].variant == "first"


def test_config_takes_a_variant_and_refuses_other_types():
    x, kernel = jnp.ones((1, 4, 5, 8)), jnp.ones((3, 3, 8, 8))
    mask = jnp.ones((1, 4, 5), bool)
    platform = "cpu" if jax.default_backend() == "cpu" else "cuda"
    variant = next(v for v in js.variants("masked_conv") if v.platform == platform)
    with js.config(variant=variant) as now:
        assert now.variant == variant.name
        assert hash(now) is not None
    if platform == "cpu":
        with js.config(variant=variant):
            assert jax.jit(js.masked_conv)(x, kernel, mask).shape == (1, 4, 5, 8)
    for given in ({"variant": 3}, {"deterministic": "yes"}):
        with pytest.raises(TypeError, match=next(iter(given))), js.config(**given):
            pass
    with pytest.raises(ValueError, match="selection"), js.config(selection=["static"]):
        pass


def test_a_variant_is_its_own_ops_only():
    x, kernel, mask = jnp.ones((1, 4, 5, 8)), jnp.ones((3, 3, 8, 8)), jnp.ones((1, 4, 5), bool)
    other = js.variants("grouped_matmul")[-1]
    free = js.explain(js.masked_conv, x, kernel, mask).calls[0].choice
    with js.config(variant=other):
        assert js.explain(js.masked_conv, x, kernel, mask).calls[0].choice == free
        with js.config(variant="dense", selection="static"):
            assert js.explain(js.masked_conv, x, kernel, mask).calls[0].variant(20) == "dense"


def test_a_variant_that_does_not_exist_is_told_from_one_that_does_not_fit():
    with (
        override(variant="foo"),
        pytest.raises(ValueError, match=r"'foo'.* is not one of its variants in this"),
    ):
        grouped(X)


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        ({"variant": "foo"}, ValueError, r"variant='foo' is not a variant .* js\.variants\(op\)"),
        (
            {"selection": "maybe"},
            ValueError,
            "selection='maybe' is not one of static, device",
        ),
        ({"implementation": "metal"}, ValueError, "'metal' is not one of cuda, cpu, reference"),
        ({"implementation": "cuda:n128"}, ValueError, "is not one of .* named by variant="),
        ({"implementation": 3}, TypeError, "implementation=3; it takes None"),
        ({"implementation": ()}, ValueError, "names none of"),
    ],
)
def test_config_checks_what_it_is_given_when_it_is_called(given, kind, words):
    with pytest.raises(kind, match=words):
        js.config(**given)


def test_an_implementation_for_every_call_inside():
    ran = {}
    jitted = jax.jit(grouped)
    for name in ("reference", None, ("reference", "cpu")):
        with js.config(implementation=name):
            calls = js.explain(lambda x: grouped(x) + js.masked_matmul(x, x.T).sum(), X).calls
            ran[name] = {call.implementation for call in calls}
            np.testing.assert_allclose(jitted(X), grouped(X), rtol=1e-6)
            with js.config(selection="static"):
                assert js.explain(grouped, X).calls[0].implementation in ran[name]
    assert ran["reference"] == ran["reference", "cpu"] == {"reference"}
    with js.config(implementation="reference"):
        own = js.explain(lambda x: js.grouped_matmul(x, RHS, SIZES, implementation=HOME), X)
        gradient = jax.grad(lambda x: grouped(x).sum())
    assert own.calls[0].implementation == HOME
    np.testing.assert_allclose(gradient(X)[0], np.full(4, 5.0))


def test_an_implementation_that_an_op_lacks_is_named():
    other = "cpu" if HOME == "cuda" else "cuda"
    told = rf"implementation=\W*{other}\W* cannot run.*; on {HOME} it takes implementation='{HOME}'"
    with js.config(implementation=other), pytest.raises(ValueError, match=told):
        grouped(X)


@pytest.mark.parametrize("implementation", ["cpu", ("cpu",)])
def test_an_implementation_of_another_platform_is_refused_when_lowered(implementation):
    """Also where several platforms are lowered for, under vmap and in shard_map."""
    mesh = jax.make_mesh((1,), ("b",))

    def asked(x):
        run = lambda x: js.grouped_matmul(x, RHS, SIZES, implementation=implementation)  # noqa: E731
        each = jax.shard_map(run, mesh=mesh, in_specs=jax.P(), out_specs=jax.P())
        return run(x) + each(x) + jax.vmap(run)(x[None])[0]

    told = (
        "grouped_matmul: implementation=.*'cpu'.* cannot run on cuda, .* lowered for; "
        "on cuda it takes implementation='"
    )
    with pytest.raises(ValueError, match=told):
        jax.jit(asked).trace(X).lower(lowering_platforms=("cuda",))
    if HOME == "cpu":
        np.testing.assert_allclose(jax.jit(asked)(X)[:2], np.full((2, 5), 12.0))


def test_static_arguments_and_closures():
    mask = jnp.ones((1, 4, 5), bool)
    x, kernel = jnp.ones((1, 4, 5, 8)), jnp.ones((3, 3, 8, 8))

    def model(x, activation, scale=1.0, *, padding):
        return scale * js.masked_conv(x, kernel, mask, activation=activation, padding=padding)

    told = js.explain(
        model, x, "relu", padding=((1, 1), (1, 1)), static_argnames=("activation", "padding")
    )
    assert [call.op for call in told.calls] == ["masked_conv"]
    assert told.result.shape == x.shape
    told = js.explain(js.tile_index, mask, (2, 2), static_argnames="tile")
    assert told.result.tile == (2, 2)


@pytest.mark.parametrize("sizes", [[2, 5], [-1, 3]])
def test_group_sizes_that_were_cut(sizes):
    told = js.explain(lambda: js.grouped_matmul(X, jnp.ones((2, 4, 5)), jnp.asarray(sizes)))
    assert "in 1 of 1 runs group_sizes reached past the last sorted row" in str(told)
    assert "capacity" not in str(told)


@pytest.mark.parametrize(("gather", "count"), [([7, 8, -1], 0), ([2, 8, 0], 1)])
def test_rows_out_of_range_are_skipped(gather, count):
    index, sizes = jnp.asarray(gather), jnp.asarray([1, 1])
    told = js.explain(lambda: js.grouped_matmul(X, jnp.ones((2, 4, 5)), sizes, gather=index))
    assert told.calls[0].counts == [count]


def test_tiles_of_components_are_no_share_of_the_grid():
    mask = jnp.zeros((1, 8, 8), bool).at[:, ::2, ::2].set(True)
    said = str(js.explain(lambda m: js.tile_index(m, (4, 4), align="component").count, mask))
    assert "ran" in said
    assert "16 tiles; the grid has 4" in said
    assert "%" not in said


def test_an_index_that_overflows_leaves_tiles_out(rng):
    mask = jnp.asarray(rng.random((1, 8, 8)) < 0.5)
    index = js.tile_index(mask, (1, 1), capacity=4)
    x, kernel = jnp.ones((1, 8, 8, 4)), jnp.ones((3, 3, 4, 4))
    said = str(js.explain(js.masked_conv, x, kernel, index))
    assert "overflow in 1 of 1 runs, which left tiles out: raise capacity" in said
    assert f"{int(mask.sum())} of 64 tiles" in said


def test_what_is_no_function_is_refused():
    with pytest.raises(TypeError, match="fn must be callable, not list"):
        js.explain([1.0])  # pyright: ignore[reportArgumentType]


def test_a_string_is_named_as_static():
    mask = jnp.ones((1, 4, 4), bool)
    x, kernel = jnp.ones((1, 4, 4, 2)), jnp.ones((3, 3, 2, 2))
    with pytest.raises(TypeError, match=r"activation='relu' .* add static_argnames='activation'"):
        js.explain(js.masked_conv, x, kernel, mask, activation="relu")
    with pytest.raises(TypeError, match=r"argument 1 of fn, 'relu', .* static_argnames="):
        js.explain(lambda x, name: x, x, "relu")
    told = js.explain(
        js.masked_conv, x, kernel, mask, activation="relu", static_argnames="activation"
    )
    assert told.calls
