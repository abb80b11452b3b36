"""The choice on the device: the same result as every other way, the variant that the costs say."""

import dataclasses
import functools
import itertools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ops.masked_conv.test_masked_conv import make_inputs
from ops.op_suite import assert_close

import jaxsparse as js
from jaxsparse.core.geometry import Geometry
from jaxsparse.index.chosen import ChosenIndex, chosen_index
from jaxsparse.ops.masked_conv import device as masked_conv_device
from jaxsparse.ops.masked_conv.operands import Operands
from jaxsparse.ops.masked_conv.params import ConvParams
from jaxsparse.select.choice import Against
from jaxsparse.select.costs import EVERY, Candidate
from jaxsparse.select.masked_conv.portfolio import held
from jaxsparse.select.table import Rate

PLATFORM = "cuda" if jax.default_backend() == "gpu" else "cpu"
DTYPES = ("float32", "bfloat16", "float16")
SHAPE = (2, 9, 37)


def table_with(rates):
    """A tuning table that knows nothing but these rates: variant -> (start, step, tail)."""
    rows = [
        Rate("masked_conv", dtype, name, *rate)
        for dtype, (name, rate) in itertools.product(DTYPES, rates.items())
    ]
    return js.TuningTable(device="test", measured="", entries=(), processors=2, rates=tuple(rows))


def names():
    """Variants that may stand beside each other, the narrowest first: a tile is not left half
    empty.
    """
    rows = sorted(js.variants("masked_conv"), key=lambda v: (v.fields.get("tile_n", 0), v.number))
    return [
        v.name
        for v in rows
        if v.platform == PLATFORM
        and v.name != "dense"
        and v.number not in ({0, 1} if PLATFORM == "cuda" else set())
        and (PLATFORM == "cpu" or held(v))
    ]


@pytest.fixture
def call(rng):
    diff, _ = make_inputs(rng, 0.3, channels=32, outputs=64)
    diff = {k: jnp.asarray(v) for k, v in diff.items()}

    def run(mask, x=diff["x"], **change):
        arrays = {**diff, **change}
        return js.masked_conv(
            x, arrays["kernel"], mask, bias=arrays["bias"], base=arrays["base"], activation="relu"
        )

    run.arrays = diff
    return run


def masks(rng):
    return [jnp.asarray(rng.random(SHAPE) < d) for d in (0.0, 0.05, 0.3, 0.9, 1.1)]


def steps():
    """Rates under which each variant in turn is cheapest as the count grows."""
    return {name: (10.0 * i + 1.0, 1.0 / (1 + 20 * i), 0.0) for i, name in enumerate(names()[:4])}


def chosen(call, mask):
    told = js.explain(call, mask).calls[0]
    return told.choice.how, told.variant(told.counts[0])


@pytest.mark.parametrize("dtype", DTYPES)
def test_three_forms_agree(call, rng, dtype):
    cast = {k: v.astype(dtype) for k, v in call.arrays.items()}
    run = functools.partial(call, **cast)
    for mask in masks(rng):
        with js.config(selection="static"):
            want = jax.jit(run)(mask)
        for selection in ("device", "switch"):
            with js.config(selection=selection, tuning=table_with(steps())):
                got = jax.jit(run)(mask)
            assert got.dtype == want.dtype
            assert_close(got, want, dtype)


def each_variant(run, active):
    """(variant, result) of every variant that takes the problem, where it alone is known."""
    for name in names():
        with js.config(selection="device", tuning=table_with({name: (1.0, 1.0, 0.0)})):
            how, variant = chosen(run, active)
            if how == "static":
                continue  # this variant does not take the problem
            got = jax.jit(run)(active)
        yield variant.removesuffix(" on every tile"), got


def test_each_variant_runs_where_it_is_cheapest(call, rng):
    ran, mask = set(), masks(rng)[2]
    with js.config(variant="dense"):
        want = call(mask)
    for variant, got in each_variant(call, mask):
        ran.add(variant)
        assert_close(got, want, "float32")
    assert len(ran) >= 2


@pytest.mark.parametrize(
    "needs", ["relu6", "gelu", "residual", "dilation", "tiles", "preferred_element_type"]
)
def test_every_variant_does_what_few_calls_need(rng, needs):
    """What the GPU's kernels of plain calls leave out."""
    dtype = "bfloat16" if PLATFORM == "cuda" else "float32"
    diff, _ = make_inputs(rng, 0.3, channels=64, outputs=128)
    x, kernel = jnp.asarray(2 * diff["x"], dtype), jnp.asarray(diff["kernel"], dtype)
    options = {
        "residual": {"residual": jnp.asarray(diff["base"], dtype)},
        "dilation": {"dilation": 2},
        "preferred_element_type": {"preferred_element_type": jnp.float32},
        "tiles": {},
    }.get(needs, {"activation": needs})
    mask = masks(rng)[2]
    index = js.tile_index(mask, (2, 4) if needs == "tiles" else (1, 1))

    def run(active):
        return js.masked_conv(x, kernel, active, bias=jnp.asarray(diff["bias"]), **options)

    with js.config(variant="dense"):
        want = run(mask)
    ran = set()
    for variant, got in each_variant(run, index):
        ran.add(variant)
        assert_close(got, want, dtype, scale=2.0)
    assert len(ran) >= 2


def test_the_count_decides(call, rng):
    first, second = names()[:2]
    full = math.prod(SHAPE)
    cheap_when_few = {first: (1.0, 1.0, 0.0), second: (1e6, 0.0, 0.0)}
    if PLATFORM == "cpu":
        cheap_when_few[second] = (32.0 * 64 * 9 / 1e6 * full / 2, 0.0, 0.0)
    with js.config(selection="device", tuning=table_with(cheap_when_few)):
        few = chosen(call, jnp.zeros(SHAPE, bool))
        many = chosen(call, jnp.ones(SHAPE, bool))
    assert few == ("device", first)
    if PLATFORM == "cpu":
        assert many[1].startswith(second)


def test_a_mask_is_indexed_and_chosen_for_in_one_call(call, rng):
    with js.config(selection="device", tuning=table_with(steps())):
        text = jax.jit(call).lower(masks(rng)[2]).as_text()
    assert text.count("@jaxsparse_") == 2
    assert "jaxsparse_portfolio_index" in text
    assert "jaxsparse_masked_conv_device" in text


def test_nothing_runs_between_the_index_and_the_convolution(call, rng):
    """The convolution takes the index's results as they are: no list's count is cut out."""
    with js.config(selection="device", tuning=table_with(steps())):
        text = jax.jit(call).lower(masks(rng)[2]).compile().as_text()
    made = {}  # instruction -> its operation and its operands
    for line in text[text.index("\nENTRY") :].splitlines():
        found = re.match(r"\s*(?:ROOT )?%?(\S+) = .*? ([a-z-]+)\((.*?)\)", line)
        if found:
            made[found[1]] = found[2], re.findall(r"%?([\w.-]+)", found[3])
            if '"jaxsparse_masked_conv_device"' in line:
                made["convolution"] = made[found[1]]

    def source(name):
        while made[name][0] in ("bitcast", "get-tuple-element"):
            name = made[name][1][0]
        return made[name][0]

    sources = [source(name) for name in made["convolution"][1] if name in made]
    assert sources.count("custom-call") == 4  # ids, count, words, choice
    assert set(sources) <= {"custom-call", "parameter", "constant", "copy"}


def test_an_index_serves_many_ops(call, rng):
    mask = masks(rng)[2]
    for tile in ((1, 1), (2, 4), (3, 5), (8, 8)):
        index = js.tile_index(mask, tile)
        with js.config(selection="device", tuning=table_with(steps())):
            assert chosen(call, index)[0] == "device"
            got = jax.jit(call)(index)
        assert_close(got, call(mask), "float32")


def test_an_overflowing_list_stays_what_it_is(call, rng):
    mask = masks(rng)[3]
    index = js.tile_index(mask, (2, 4), capacity=7, ordered=True)
    with js.config(selection="static"):
        want = call(index)
    with js.config(selection="device", tuning=table_with(steps())):
        how, name = chosen(call, index)
        got = jax.jit(call)(index)
    assert how == "device"
    assert "every tile" not in name
    assert_close(got, want, "float32")


def test_components_are_served_too(call, rng):
    mask = masks(rng)[1]
    index = js.tile_index(mask, (2, 4), align="component")
    with js.config(selection="device", tuning=table_with(steps())):
        assert chosen(call, index)[0] == "device"
        assert_close(jax.jit(call)(index), call(mask), "float32")


def test_gradients(call, rng):
    mask = masks(rng)[2]
    x = call.arrays["x"]

    def loss(x, kernel, mask):
        return jnp.sum(call(mask, x=x, kernel=kernel) ** 2)

    grad = jax.grad(loss, argnums=(0, 1))
    with js.config(selection="static"):
        want = jax.jit(grad)(x, call.arrays["kernel"], mask)
    with js.config(selection="device", tuning=table_with(steps())):
        text = jax.jit(grad).lower(x, call.arrays["kernel"], mask).as_text()
        got = jax.jit(grad)(x, call.arrays["kernel"], mask)
    assert text.count("@jaxsparse_masked_conv_device(") >= 2
    for a, b in zip(got, want, strict=True):
        assert_close(a, b, "float32", scale=4.0)


# Not in the op suite: the choice on the device has rules of its own.
def test_vmap_scan_and_remat(call, rng):
    batch = jnp.stack(masks(rng)[1:4])
    want = [call(m) for m in batch]

    def body(carry, mask):
        return carry, jax.checkpoint(call)(mask)

    with js.config(selection="device", tuning=table_with(steps())):
        mapped = jax.jit(jax.vmap(call))(batch)
        _, scanned = jax.jit(lambda b: jax.lax.scan(body, 0, b))(batch)
    for i in range(3):
        assert_close(mapped[i], want[i], "float32")
        assert_close(scanned[i], want[i], "float32")


def test_export(call, rng):
    mask = masks(rng)[2]
    with js.config(selection="device", tuning=table_with(steps())):
        exported = jax.export.export(jax.jit(call), disabled_checks=js.DISABLE_JAX_EXPORT_CHECKS)(
            mask
        )
    assert_close(jax.export.deserialize(exported.serialize()).call(mask), call(mask), "float32")


# Not in the op suite: the choice on the device has rules of its own.
def test_shard_map(call, rng):
    mesh = jax.sharding.Mesh(jax.devices()[:1], ("batch",))
    spec = jax.sharding.PartitionSpec("batch")
    base = call.arrays["base"]

    def local(x, base, mask):
        return call(mask, x=x, base=base)

    run = jax.shard_map(local, mesh=mesh, in_specs=(spec, spec, spec), out_specs=spec)
    mask = masks(rng)[2]
    with js.config(selection="device", tuning=table_with(steps())):
        got = jax.jit(run)(call.arrays["x"], base, mask)
    assert_close(got, call(mask), "float32")


@pytest.mark.parametrize("wanted", [0, 1, 2])
def test_candidates_over_several_lists(rng, wanted):
    if PLATFORM != "cpu":
        pytest.skip("the variants of a CPU take any list")
    x = jnp.asarray(rng.standard_normal((2, 9, 37, 8)), jnp.float32)
    kernel = jnp.asarray(rng.standard_normal((3, 3, 8, 16)), jnp.float32)
    mask = masks(rng)[2]
    params = ConvParams(
        Geometry((1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), 1), None, "default", "float32"
    )
    costs = [(9.0, 9.0, float(t), 0.0, 0.0) for t in (0, 1, EVERY)]
    costs[wanted] = (1.0, 0.0, costs[wanted][2], 0.0, 0.0)
    candidates = tuple(
        Candidate(name, number, int(cost[2]), cost)
        for number, (name, cost) in enumerate(zip("abc", costs, strict=True))
    )
    index = chosen_index(mask, ((1, 1), (4, 8)), candidates)
    assert int(index.choice) == wanted
    got = masked_conv_device.forward(params, "cpu", candidates, *Operands(x, kernel, index))
    assert_close(got, js.masked_conv(x, kernel, mask), "float32")
    by_count = dataclasses.replace(index, candidates=())  # chooses by the counts
    again = masked_conv_device.forward(params, "cpu", candidates, *Operands(x, kernel, by_count))
    assert_close(again, got, "float32")


def test_the_visited_list_alone_overflows(rng):
    """What a further list leaves out becomes zero, though the first one holds every tile."""
    x = jnp.asarray(rng.standard_normal((2, 9, 37, 64)), jnp.bfloat16)
    kernel = jnp.asarray(rng.standard_normal((3, 3, 64, 64)) / 24, jnp.bfloat16)
    mask = masks(rng)[3]
    params = ConvParams(
        Geometry((1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), 1), None, "default", "bfloat16"
    )
    row = next(v for v in js.variants("masked_conv") if v.name in names())
    candidates = (Candidate(row.name, row.number, 1, (1.0, 0.0, 1.0, 0.0, 0.0)),)
    index = chosen_index(mask, ((1, 1), (4, 8)), candidates)
    short = js.tile_index(mask, (4, 8), capacity=3, ordered=True)
    visited = Operands(x, kernel, dataclasses.replace(index, others=(short,)))
    got = masked_conv_device.forward(params, PLATFORM, candidates, *visited)
    assert_close(got, js.masked_conv(x, kernel, short), "bfloat16")


@pytest.mark.parametrize("outputs", [64, 72])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_candidate_that_visits_every_tile_writes_the_zeros(rng, dtype, outputs):
    """Random pixels: nearly every block of a box variant has unset ones."""
    x = jnp.asarray(rng.standard_normal((2, 19, 37, 64)), dtype)
    kernel = jnp.asarray(rng.standard_normal((3, 3, 64, outputs)) / 24, dtype)
    bias = jnp.asarray(rng.standard_normal(outputs), jnp.float32)
    mask = jnp.asarray(rng.random((2, 19, 37)) < 0.5)
    geometry = Geometry((1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), 1)
    params = ConvParams(geometry, "silu", "default", dtype)
    index = js.tile_index(mask, (8, 8))
    want = js.masked_conv(x, kernel, mask, bias=bias, activation="silu")
    outside = ~np.asarray(mask)
    for row in js.variants("masked_conv"):
        if row.platform != PLATFORM or row.name not in names():
            continue
        candidates = (Candidate(row.name, row.number, EVERY, (1.0, 0.0, float(EVERY), 0.0, 0.0)),)
        got = masked_conv_device.forward(
            params, PLATFORM, candidates, *Operands(x, kernel, index, bias)
        )
        assert_close(got, want, dtype)
        assert not np.asarray(got)[outside].any()


def test_a_foreign_choice_is_not_followed(call, rng):
    """An index that chose for one op serves another, which chooses by its own costs."""
    mask = masks(rng)[2]
    with js.config(selection="device", tuning=table_with(steps())):
        index = js.tile_index(mask, (1, 1))
        wrong = ChosenIndex(
            index.ids,
            index.count,
            index.overflow,
            index.words,
            index.tile,
            index.shape,
            index.capacity,
            choice=jnp.asarray(99, jnp.int32),
        )
        assert_close(jax.jit(call)(wrong), call(mask), "float32")


def test_without_rates_it_stays_static_and_says_so(call, rng):
    empty = js.TuningTable(device="test", measured="", entries=())
    with js.config(selection="device", tuning=empty):
        told = js.explain(call, masks(rng)[2]).calls[0]
    assert told.choice.how == "static"
    assert told.choice.against_device is Against.NO_RATES
    assert told.choice.why in str(told)


def test_the_default_of_a_gpu_and_of_a_cpu(call, rng):
    told = js.explain(call, masks(rng)[2]).calls[0]
    if PLATFORM == "cpu":
        assert told.choice.how == "static"
    text = jax.jit(call).trace(masks(rng)[2]).lower(lowering_platforms=("cuda",)).as_text()
    from jaxsparse.ffi import register

    if register.module("cuda")[0] is None:
        pytest.skip("no cuda module in this build")
    assert "jaxsparse_masked_conv" in text
