"""ring_attention on four devices: masks as users make and pass them, against dense attention in
float64; and what the devices exchange and hold.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from ops.op_spec import assert_close
from ops.sparse_attention.oracle import attention, gradients

import jaxsparse as js

DEVICES = 4
BATCH, T, HEADS, KV_HEADS, DEPTH, BLOCK = 2, 256, 4, 2, 16, 16
EACH = T // DEVICES
SPEC, LSE, WHOLE = P(None, "seq"), P(None, None, "seq"), P()
KINDS = pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=["auto", "expl"])
pytestmark = pytest.mark.skipif(jax.device_count() < DEVICES, reason="needs four devices")


def mesh_of(kind=AxisType.Auto, shape=(DEVICES,), names=("seq",)):
    return jax.make_mesh(
        shape, names, (kind,) * len(names), devices=jax.devices()[: math.prod(shape)]
    )


def drawn(rng, dtype=np.float32, batch=BATCH):
    """q, k, v and the cotangents of out and lse."""
    heads = (HEADS, KV_HEADS, KV_HEADS, HEADS)
    arrays = [rng.standard_normal((batch, T, n, DEPTH)).astype(dtype) for n in heads]
    return *arrays, rng.standard_normal((batch, HEADS, T), np.float32)


def causal(q_len=T, offset=0):
    return js.block_masks.causal(q_len, T, BLOCK, offset=offset)


def window(q_len=T, offset=0):
    return js.block_masks.sliding_window(q_len, T, BLOCK, left=40, right=3, offset=offset)


def made(q_len=T, offset=0):
    """Some whole rows attend to nothing."""

    def holds(b, h, q, kv):
        q = q + offset
        return ((q * 7 + kv * 3) % 5 < 2) & (q >= kv) & (q % 50 > 20) & (h != 1)

    return js.create_block_mask(holds, None, HEADS, q_len, T, BLOCK)


def document(q_len=T, offset=0):
    """A mask of all queries: each device uses its rows."""
    return js.block_masks.document(jnp.asarray([[3, 90, 100, 250], [0, 16, 20, 64]]), T, BLOCK)


def blocks(q_len=T, offset=0):
    """Only full blocks; one device's queries attend to nothing."""
    bits = np.random.default_rng(1).random((BATCH, HEADS, T // BLOCK, T // BLOCK)) < 0.3
    bits[:, :, T // BLOCK // 4 : T // BLOCK // 2] = False
    return js.BlockMask.from_block_bits(bits, BLOCK, T, T)


MASKS = {"causal": causal, "window": window, "made": made, "document": document, "blocks": blocks}


def split(body, mesh, results=(SPEC, LSE), specs=SPEC, mask=WHOLE):
    return jax.shard_map(body, mesh=mesh, in_specs=(specs,) * 3 + (mask,), out_specs=results)


def attend(q, k, v, mask, **options):
    return js.ring_attention(q, k, v, mask, "seq", return_lse=True, **options)


def compare(found, given, keep, dtype="float32", scale=2.0):
    """The results and gradients of `both` against float64."""
    exact = [np.asarray(x, np.float64) for x in given]
    (out, lse), grads = found
    want, want_lse = attention(*exact[:3], keep, scale=DEPTH**-0.5)
    assert_close(out, want, dtype, scale)
    some = np.isfinite(want_lse)
    np.testing.assert_array_equal(np.isfinite(lse), some)
    assert_close(np.where(some, lse, 0), np.where(some, want_lse, 0), "float32", 10 * scale)
    wanted = gradients(*exact, keep, scale=DEPTH**-0.5)
    for one, other in zip(grads, wanted, strict=True):
        assert one.dtype == given[0].dtype
        assert_close(one, other, dtype, 2 * scale)
    return out, grads


def both(run):
    """Results, and gradients at the cotangents."""

    def all_of(q, k, v, gout, glse, *rest):
        found, pull = jax.vjp(lambda *qkv: run(*qkv, *rest), q, k, v)
        glse = jnp.where(jnp.isfinite(found[1]), glse, 0)
        return found, pull((gout, glse))

    return jax.jit(all_of)


@KINDS
@pytest.mark.parametrize("name", MASKS)
def test_masks_that_users_make(name, kind, rng):
    """Where the maker takes an offset, each device makes its own rows."""
    make, given, mesh = MASKS[name], drawn(rng), mesh_of(kind)
    whole = make()

    def body(q, k, v, mask):
        if name in ("causal", "window", "made"):
            mask = make(EACH, jax.lax.axis_index("seq") * EACH)
            assert mask.shape[2:] == (EACH, T)
        return attend(q, k, v, mask)

    put = [jax.device_put(x, NamedSharding(mesh, SPEC)) for x in given[:4]]
    put += [jax.device_put(given[4], NamedSharding(mesh, LSE))]
    mask = jax.device_put(whole, NamedSharding(mesh, P()))
    keep = np.asarray(whole.to_dense())
    out, grads = compare(both(split(body, mesh))(*put, mask), given, keep)
    none = ~np.broadcast_to(keep, (BATCH, HEADS, T, T)).any(3).swapaxes(1, 2)
    assert none.any() == (name not in ("causal", "window"))
    assert not np.asarray(out)[none].any()
    assert not np.asarray(grads[0])[none].any()
    assert out.sharding.is_equivalent_to(NamedSharding(mesh, SPEC), 4)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_16_bits(dtype, rng):
    given = drawn(rng, dtype)
    found = both(split(attend, mesh_of()))(*map(jnp.asarray, given), causal())
    compare(found, given, np.asarray(causal().to_dense()), dtype)


def test_the_whole_mask_and_rows_of_it_are_the_same(rng):
    given, mask = drawn(rng), made()

    def rows(q, k, v, mask):
        count = EACH // BLOCK
        at = jax.lax.axis_index("seq") * count + jnp.arange(count)
        mine = mask.take(q_blocks=at)
        assert mine.shape == (1, HEADS, EACH, T)
        return attend(q, k, v, mine)

    pair = [both(split(body, mesh_of()))(*given, mask) for body in (attend, rows)]
    for one, other in zip(*map(jax.tree.leaves, pair), strict=True):
        np.testing.assert_array_equal(one, other)


def test_zigzag(rng):
    """Tokens and mask permuted by blocks: every device has the same blocks in every step."""
    given, mask = drawn(rng), causal()
    chunks = np.arange(T // BLOCK).reshape(2 * DEVICES, -1)
    order = np.stack([chunks[:DEVICES], chunks[: DEVICES - 1 : -1]], 1).reshape(-1)
    tokens = (order[:, None] * BLOCK + np.arange(BLOCK)).reshape(-1)
    moved = [jnp.asarray(x)[:, tokens] for x in given[:4]] + [given[4][:, :, tokens]]
    taken = mask.take(q_blocks=order, kv_blocks=order)
    counts = np.asarray(taken.block_bits())[0, 0].reshape(DEVICES, -1, DEVICES, T // BLOCK // 4)
    each = counts.sum((1, 3))
    assert len({*each[~np.eye(DEVICES, dtype=bool)]}) == 1
    assert len({*each.diagonal()}) == 1
    (out, lse), grads = both(split(attend, mesh_of()))(*moved, taken)
    back = np.argsort(tokens)
    found = (out[:, back], lse[:, :, back]), [g[:, back] for g in grads]
    compare(found, given, np.asarray(mask.to_dense()))


@KINDS
def test_batch_over_another_axis(kind, rng):
    """A mask per sequence, whose bits all devices have."""
    given, mask = drawn(rng), document()
    mesh = mesh_of(kind, (2, 2), ("data", "seq"))
    by, by_lse, lists = P("data", "seq"), P("data", None, "seq"), P("data")
    whole = jax.tree.map(lambda _: lists, mask)
    specs = js.BlockMask(*[lists] * 6, P(), P(), mask.block_size, T, T)
    assert jax.tree.structure(whole) == jax.tree.structure(specs)
    put = [jax.device_put(x, NamedSharding(mesh, by)) for x in given[:4]]
    put += [jax.device_put(given[4], NamedSharding(mesh, by_lse))]
    spread = jax.tree.map(lambda x, s: jax.device_put(x, NamedSharding(mesh, s)), mask, specs)
    run = both(split(attend, mesh, (by, by_lse), by, specs))
    compare(run(*put, spread), given, np.asarray(mask.to_dense()))


def test_a_ring_over_two_axes(rng):
    mesh, by = mesh_of(shape=(2, 2), names=("host", "gpu")), P(None, ("host", "gpu"))
    body = functools.partial(js.ring_attention, axis_name=("host", "gpu"), return_lse=True)
    run = both(split(body, mesh, (by, P(None, None, ("host", "gpu"))), by))
    given = drawn(rng)
    compare(run(*given, causal()), given, np.asarray(causal().to_dense()))


def test_one_device_is_sparse_attention(rng):
    mesh = mesh_of(shape=(1,))
    given, mask = drawn(rng), causal()
    text = both(split(attend, mesh)).lower(*given, mask).as_text()
    assert "collective_permute" not in text
    got = both(split(attend, mesh))(*given, mask)
    want = both(functools.partial(js.sparse_attention, return_lse=True))(*given, mask)
    for one, other in zip(*map(jax.tree.leaves, (got, want)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


def test_positions_are_those_of_the_whole_sequence(rng):
    """Slopes and bias, also where there are other numbers of queries than of keys."""
    q, k, v, *_ = drawn(rng)
    q = q[:, : T // 2]
    slopes = rng.random(HEADS, np.float32) / np.float32(8)
    bias = rng.standard_normal((BATCH, 1, T // 2, T), np.float32)
    mask = js.block_masks.sliding_window(T // 2, T, BLOCK, left=T, right=90)

    def body(q, k, v, mask, slopes, bias):
        return attend(q, k, v, mask, slopes=slopes, bias=bias)[0]

    specs = (SPEC, SPEC, SPEC, P(), P(), P(None, None, "seq"))
    run = jax.shard_map(body, mesh=mesh_of(), in_specs=specs, out_specs=SPEC)
    exact = [x.astype(np.float64) for x in (q, k, v)]
    options = {"slopes": slopes.astype(np.float64), "bias": bias.astype(np.float64)}
    want, _ = attention(*exact, np.asarray(mask.to_dense()), scale=DEPTH**-0.5, **options)
    assert_close(jax.jit(run)(q, k, v, mask, slopes, bias), want, "float32", 4)
    one_row = bias[:, :, :, :1]  # a bias that all keys share
    run = jax.shard_map(body, mesh=mesh_of(), in_specs=specs, out_specs=SPEC)
    options["bias"] = one_row.astype(np.float64)
    want, _ = attention(*exact, np.asarray(mask.to_dense()), scale=DEPTH**-0.5, **options)
    assert_close(jax.jit(run)(q, k, v, mask, slopes, one_row), want, "float32", 4)


def test_keys_go_around_and_nothing_is_gathered(rng):
    """No device holds more than a few shards, however many there are."""
    used = {}
    for devices in (3, 4):
        length = 64 * devices
        mesh = mesh_of(shape=(devices,))
        mask = js.block_masks.causal(length, block_size=BLOCK)
        run = both(split(attend, mesh))
        shapes = [(1, length, 2, 256)] * 4 + [(1, 2, length)]
        given = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
        compiled = run.lower(*given, mask).compile()
        text = compiled.as_text()
        assert "collective-permute" in text
        assert not [name for name in ("all-gather", "all-to-all") if name in text]
        shard = 4 * 64 * 2 * 256
        used[devices] = compiled.memory_analysis().temp_size_in_bytes / shard
    assert used[4] < used[3] + 0.5


def test_layers_in_a_scan_with_remat(rng):
    """The whole network in one shard_map, its gradient taken outside, as training does."""
    width, layers = HEADS * DEPTH, 3
    x = rng.standard_normal((BATCH, T, width), np.float32)
    weights = rng.standard_normal((layers, width, 3 * width), np.float32) / np.float32(30)

    def layer(attention, x, w):
        parts = jnp.split(jnp.matmul(x, w, precision="highest"), 3, -1)
        q, k, v = (p.reshape(*x.shape[:2], HEADS, DEPTH) for p in parts)
        return x + attention(q, k, v).reshape(x.shape), None

    def network(attention, x, weights):
        step = jax.checkpoint(functools.partial(layer, attention))
        return jax.lax.scan(step, x, weights)[0]

    def local(x, weights, mask):
        return network(lambda q, k, v: attend(q, k, v, mask)[0], x, weights)

    specs = (SPEC, P(), P())
    spread = jax.shard_map(local, mesh=mesh_of(), in_specs=specs, out_specs=SPEC)
    mask = window()

    def loss(run, x, weights):
        return jnp.sin(run(x, weights)).sum()

    ring = lambda x, w: spread(x, w, mask)  # noqa: E731
    alone = functools.partial(network, lambda q, k, v: js.sparse_attention(q, k, v, mask))
    compiled = jax.jit(jax.grad(functools.partial(loss, ring), (0, 1))).lower(x, weights).compile()
    assert "all-gather" not in compiled.as_text()
    want = jax.jit(jax.grad(functools.partial(loss, alone), (0, 1)))(x, weights)
    for one, other in zip(compiled(x, weights), want, strict=True):
        assert_close(one, other, "float32", 10)


def test_an_empty_step_reads_no_keys(rng):
    """NaN in the keys of devices that the mask leaves out reaches nothing."""
    q, k, v, gout, glse = drawn(rng)
    mask = js.block_masks.lengths(jnp.asarray(EACH), T, T, BLOCK)
    bad = [np.where(np.arange(T)[:, None, None] < EACH, x, np.float32(np.nan)) for x in (k, v)]
    (out, _), grads = both(split(attend, mesh_of()))(q, *bad, gout, glse, mask)
    (want, _), wanted = both(split(attend, mesh_of()))(q, k, v, gout, glse, mask)
    np.testing.assert_array_equal(out, want)
    for one, other in zip(grads, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


def test_without_the_check_of_what_varies(rng):
    given = drawn(rng)
    run = jax.shard_map(
        attend,
        mesh=mesh_of(),
        in_specs=(SPEC, SPEC, SPEC, P()),
        out_specs=(SPEC, LSE),
        check_vma=False,
    )
    compare(both(run)(*given, causal()), given, np.asarray(causal().to_dense()))


def test_outside_of_a_shard_map(rng):
    q, k, v, *_ = drawn(rng)
    with pytest.raises(
        ValueError, match=r"ring_attention: axis_name='seq' is not an axis of a jax"
    ):
        js.ring_attention(q, k, v, causal(), "seq")


def test_bias_and_slopes_have_no_derivative(rng):
    q, k, v, *_ = drawn(rng)

    def loss(slopes):
        body = lambda q, k, v, m: attend(q, k, v, m, slopes=slopes)[0]  # noqa: E731
        return split(body, mesh_of(), SPEC)(q, k, v, causal()).sum()

    with pytest.raises(ValueError, match="slopes has no derivative in ring_attention"):
        jax.grad(loss)(jnp.ones(HEADS))
