"""masked_matmul against float64 numpy: every granularity, masks on all three, gradients,
transforms, NaN in masked blocks.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P
from ops.op_suite import assert_close, cast, rounded

import jaxsparse as js
from jaxsparse.select.variants import table

GRANULARITIES = [(1, 1), (1, 64), (32, 1), (32, 64), (5, 7), (8, 100), (1, 200), (200, 1)]


def entries(mask, block, shape):
    """The mask of entries, by numpy's own indexing."""
    rows, columns = np.arange(shape[0]) // block[0], np.arange(shape[1]) // block[1]
    return np.asarray(mask)[..., rows[:, None], columns[None, :]]


def oracle(diff, masks, block):
    a, b = (np.asarray(diff[k], np.float64) for k in ("a", "b"))
    (m, k), n = a.shape[-2:], b.shape[-1]
    if "a_mask" in masks:
        a = np.where(entries(masks["a_mask"], block, (m, k)), a, 0)
    if "b_mask" in masks:
        b = np.where(entries(masks["b_mask"], block, (k, n)), b, 0)
    y = a @ b
    return np.where(entries(masks["out_mask"], block, (m, n)), y, 0) if "out_mask" in masks else y


def problem(rng, block, which="a_mask b_mask out_mask", size=(70, 90, 110), density=0.4, batch=()):
    m, k, n = size
    sides = {"a_mask": (m, k), "b_mask": (k, n), "out_mask": (m, n)}
    diff = {
        "a": rng.standard_normal((*batch, m, k), np.float32),
        "b": rng.standard_normal((*batch, k, n), np.float32) / np.float32(max(k, 1) ** 0.5),
    }
    blocks = {w: [-(-s // g) for s, g in zip(sides[w], block, strict=True)] for w in which.split()}
    return diff, {w: rng.random((*batch, *blocks[w])) < density for w in which.split()}


def run(diff, masks, block, implementation, **options):
    masks = {k: jnp.asarray(v) for k, v in masks.items()}
    return js.masked_matmul(
        diff["a"], diff["b"], **masks, granularity=block, implementation=implementation, **options
    )


@pytest.mark.parametrize("block", GRANULARITIES)
@pytest.mark.parametrize("which", ["a_mask", "b_mask", "out_mask", "a_mask b_mask out_mask"])
def test_granularity(implementation, rng, block, which):
    diff, masks = problem(rng, block, which)
    assert_close(
        run(cast(diff, "float32"), masks, block, implementation),
        oracle(diff, masks, block),
        "float32",
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("density", [0.0, 0.3, 1.0])
def test_values(implementation, rng, dtype, density):
    diff, masks = problem(rng, (8, 16), density=density)
    got = run(cast(diff, dtype), masks, (8, 16), implementation)
    assert got.dtype == dtype
    assert_close(got, oracle(rounded(diff, dtype), masks, (8, 16)), dtype)


def test_without_masks_it_is_matmul(implementation, rng):
    diff, _ = problem(rng, (1, 1))
    got = run(
        cast(diff, "bfloat16"), {}, (1, 1), implementation, preferred_element_type=jnp.float32
    )
    assert got.dtype == jnp.float32
    assert_close(got, oracle(rounded(diff, "bfloat16"), {}, (1, 1)), "float32")


def test_a_granularity_for_each_mask(implementation, rng):
    diff, _ = problem(rng, (1, 1))
    blocks = {"a": (7, 1), "b": (3, 50), "out": (70, 2)}
    sizes = {"a": (70, 90), "b": (90, 110), "out": (70, 110)}
    masks = {
        k: rng.random([-(-s // g) for s, g in zip(sizes[k], blocks[k], strict=True)]) < 0.5
        for k in blocks
    }
    full = {f"{k}_mask": entries(masks[k], blocks[k], sizes[k]) for k in blocks}
    got = run(
        cast(diff, "float32"), {f"{k}_mask": v for k, v in masks.items()}, blocks, implementation
    )
    assert_close(got, oracle(diff, full, (1, 1)), "float32")


def test_lengths(implementation, rng):
    """Rows that count per product, and one weight for all: a ragged batch through a dense layer."""
    diff, _ = problem(rng, (1, 1), batch=(4,))
    diff["b"] = diff["b"][0]
    lengths = np.asarray([0, 70, 13, 41])
    mask = js.lengths_mask(jnp.asarray(lengths), 70)[..., None]
    diff["a"][np.arange(70)[None] >= lengths[:, None]] = np.nan
    got = run(cast(diff, "float32"), {"a_mask": mask}, (1, 90), implementation)
    clean = {**diff, "a": np.nan_to_num(diff["a"])}
    assert_close(got, oracle(clean, {}, (1, 1)), "float32")
    gradient = jax.grad(lambda d: jnp.sum(run(d, {"a_mask": mask}, (1, 90), implementation) ** 2))(
        cast(diff, "float32")
    )
    assert gradient["b"].shape == diff["b"].shape
    for value in gradient.values():
        assert np.isfinite(np.asarray(value)).all()


@pytest.mark.parametrize("block", [(1, 1), (32, 1), (8, 16)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_grad(implementation, rng, block, dtype):
    diff, masks = problem(rng, block)
    weight = jnp.asarray(rng.standard_normal((70, 110), np.float32))
    full = {
        k: entries(m, block, s)
        for (k, m), s in zip(masks.items(), ((70, 90), (90, 110), (70, 110)), strict=True)
    }

    def dense(d):
        y = jnp.where(full["a_mask"], d["a"], 0.0) @ jnp.where(full["b_mask"], d["b"], 0.0)
        return jnp.sum(jnp.where(full["out_mask"], y, 0.0) * weight)

    ours = lambda d: jnp.sum(run(d, masks, block, implementation).astype(jnp.float32) * weight)  # noqa: E731
    got = jax.grad(ours)(cast(diff, dtype))
    with jax.default_matmul_precision("highest"):
        want = jax.grad(dense)(cast(rounded(diff, dtype), "float32"))
    for name in diff:
        assert_close(got[name], want[name], dtype, scale=2.0)


def test_second_derivative(implementation, rng):
    block = (8, 16)
    diff, masks = problem(rng, block, size=(20, 30, 40))
    full = {
        k: entries(m, block, s)
        for (k, m), s in zip(masks.items(), ((20, 30), (30, 40), (20, 40)), strict=True)
    }

    def norm(function, d):
        gradient = jax.grad(lambda d: jnp.sum(jnp.sin(function(d))))(d)
        return sum(jnp.sum(g**2) for g in gradient.values()) * 1e-2

    def dense(d):
        y = jnp.where(full["a_mask"], d["a"], 0.0) @ jnp.where(full["b_mask"], d["b"], 0.0)
        return jnp.where(full["out_mask"], y, 0.0)

    diff = cast(diff, "float32")
    with jax.default_matmul_precision("highest"):
        got = jax.grad(lambda d: norm(lambda d: run(d, masks, block, implementation), d))(diff)
        want = jax.grad(lambda d: norm(dense, d))(diff)
    for name in diff:
        assert_close(got[name], want[name], "float32", scale=20.0)


@pytest.mark.parametrize("batched", ["all", "a", "b", "a_mask"])
def test_vmap(implementation, rng, batched):
    block = (8, 16)
    problems = [problem(rng, block, size=(20, 30, 40), density=d) for d in (0.2, 0.7, 0.0)]
    each = [
        {**cast(d, "float32"), **{k: jnp.asarray(v) for k, v in m.items()}} for d, m in problems
    ]
    moving = set(each[0]) if batched == "all" else {batched}
    axes = {k: 0 if k in moving else None for k in each[0]}
    stacked = {k: jnp.stack([e[k] for e in each]) if k in moving else each[0][k] for k in axes}

    def f(d):
        return run(d, {k: d[k] for k in ("a_mask", "b_mask", "out_mask")}, block, implementation)

    def gradient(d):
        return jax.grad(lambda v: jnp.sum(jnp.sin(f({**d, **v}))))({k: d[k] for k in ("a", "b")})

    got = jax.jit(jax.vmap(f, in_axes=(axes,)))(stacked)
    gradients = jax.jit(jax.vmap(gradient, in_axes=(axes,)))(stacked)
    for i in range(3):
        one = {k: each[i if k in moving else 0][k] for k in axes}
        assert_close(got[i], f(one), "float32")
        for name, want in gradient(one).items():
            assert_close(gradients[name][i], want, "float32", scale=2.0)


@pytest.mark.parametrize("batched", ["all", "a", "b", "a_mask"])
def test_vmap_over_nothing(implementation, batched):
    """A batch of no products, each of a list of three."""
    moving = ("a", "b", "a_mask") if batched == "all" else (batched,)
    arrays = {"a": jnp.ones((3, 4, 6)), "b": jnp.ones((6, 5)), "a_mask": jnp.ones((4, 6), bool)}
    arrays = {k: jnp.zeros((0, *v.shape), v.dtype) if k in moving else v for k, v in arrays.items()}
    axes = [0 if name in moving else None for name in arrays]

    def f(a, b, a_mask):
        return js.masked_matmul(a, b, a_mask=a_mask, implementation=implementation)

    got = jax.vmap(f, in_axes=axes)(*arrays.values())
    assert got.shape == (0, 3, 4, 5)
    gradient = jax.vmap(jax.grad(lambda *v: f(*v).sum()), in_axes=axes)(*arrays.values())
    assert gradient.shape == (0, 3, 4, 6)


@pytest.mark.parametrize("shared", ["none", "a", "b", "masks"])
def test_leading_axes(implementation, rng, shared):
    diff, masks = problem(rng, (8, 16), size=(16, 30, 40), batch=(2, 3))
    if shared in diff:
        diff[shared] = diff[shared][0, 0]
    if shared == "masks":
        masks = {k: v[0, :1] for k, v in masks.items()}
    got = run(cast(diff, "float32"), masks, (8, 16), implementation)
    assert got.shape == (2, 3, 16, 40)
    assert_close(got, oracle(diff, masks, (8, 16)), "float32")


def test_scan_remat_export(implementation, rng):
    block = (8, 16)
    diff, masks = problem(rng, block, size=(20, 30, 40))
    diff = cast(diff, "float32")
    many = {k: jnp.stack([jnp.asarray(v), ~jnp.asarray(v)]) for k, v in masks.items()}

    def body(total, m):
        return lambda d: total + jnp.sum(jnp.sin(run(d, m, block, implementation)))

    def scanned(d):
        step = jax.checkpoint(lambda t, m: (body(t, m)(d), None))
        return jax.lax.scan(step, jnp.float32(0), many)[0]

    def plain(d):
        return sum(body(jnp.float32(0), {k: v[i] for k, v in many.items()})(d) for i in range(2))

    got, want = jax.jit(jax.grad(scanned))(diff), jax.grad(plain)(diff)
    for name in diff:
        assert_close(got[name], want[name], "float32", scale=2.0)
    f = jax.jit(functools.partial(run, block=block, implementation=implementation))
    arrays = {k: jnp.asarray(v) for k, v in masks.items()}
    blob = jax.export.export(f, disabled_checks=js.DISABLE_JAX_EXPORT_CHECKS)(diff, arrays)
    again = jax.export.deserialize(blob.serialize())
    assert_close(again.call(diff, arrays), f(diff, arrays), "float32")


@pytest.mark.skipif(len(jax.devices()) < 4, reason="needs four devices")
def test_shard_map(implementation, rng):
    diff, masks = problem(rng, (8, 16), "a_mask", size=(16, 32, 40), batch=(4,))
    diff = cast({**diff, "b": diff["b"][0]}, "float32")
    mask = jnp.asarray(masks["a_mask"])
    auto = (jax.sharding.AxisType.Auto,)
    mesh = jax.make_mesh((4,), ("data",), devices=jax.devices()[:4], axis_types=auto)
    f = lambda d, m: run(d, {"a_mask": m}, (8, 16), implementation)  # noqa: E731
    specs = ({"a": P("data"), "b": P()}, P("data"))
    sharded = jax.jit(jax.shard_map(f, mesh=mesh, in_specs=specs, out_specs=P("data")))
    assert_close(sharded(diff, mask), f(diff, mask), "float32")
    assert "all-gather" not in sharded.lower(diff, mask).compile().as_text()
    got = jax.jit(jax.grad(lambda d: jnp.sum(jnp.sin(sharded(d, mask)))))(diff)
    want = jax.grad(lambda d: jnp.sum(jnp.sin(f(d, mask))))(diff)
    for name in diff:
        assert_close(got[name], want[name], "float32", scale=2.0)


@pytest.mark.parametrize("block", [(1, 1), (8, 16)])
def test_nan_in_masked_blocks_and_bitwise_repeat(implementation, rng, block):
    diff, masks = problem(rng, block)
    want = oracle(diff, masks, block)
    diff["a"][~entries(masks["a_mask"], block, (70, 90))] = np.nan
    diff["b"][~entries(masks["b_mask"], block, (90, 110))] = np.nan
    diff = cast(diff, "float32")
    f = jax.jit(jax.value_and_grad(lambda d: jnp.sum(run(d, masks, block, implementation) ** 2)))
    assert_close(run(diff, masks, block, implementation), want, "float32")
    first = jax.tree.map(np.asarray, f(diff))
    assert all(np.isfinite(v).all() for v in jax.tree.leaves(first))
    for _ in range(4):
        jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, np.asarray(b)), first, f(diff))


@pytest.mark.skipif(jax.default_backend() == "gpu", reason="the variants of a CPU")
@pytest.mark.parametrize("variant", ["auto", "wide", "quad", "pair", "single", "dense"])
def test_variants(rng, variant):
    diff, masks = problem(rng, (1, 1), size=(130, 150, 170))
    with js.config(variant=variant):
        got = run(cast(diff, "float32"), masks, (1, 1), "cpu")
    assert_close(got, oracle(diff, masks, (1, 1)), "float32")


@pytest.mark.gpu
@pytest.mark.parametrize("variant", ["auto", "wide", "tall", "direct", "dense"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("block", [(32, 64), (32, 1), (1, 64), (1, 1), (64, 128), (5, 7)])
@pytest.mark.parametrize("which", ["a_mask", "b_mask", "out_mask", "a_mask b_mask out_mask"])
def test_cuda_variants(rng, variant, dtype, block, which):
    """Rows of 16 bytes, several tiles each way, ragged edges, NaN in what is masked."""
    diff, masks = problem(rng, block, which, size=(200, 264, 712), density=0.3)
    want = oracle(rounded(diff, dtype), masks, block)
    for name, shape in (("a", (200, 264)), ("b", (264, 712))):
        if f"{name}_mask" in masks:
            diff[name][~entries(masks[f"{name}_mask"], block, shape)] = np.nan
    with js.config(variant=variant):
        got = run(cast(diff, dtype), masks, block, "cuda")
    assert_close(got, want, dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("variant", ["wide", "tall"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("block", [(32, 1), (1, 3), (7, 8), (1, 100)])
def test_cuda_columns_that_follow_each_other(rng, variant, dtype, block):
    """Nearly full masks: tiles take all columns, 16 bytes at a time; NaN in what is masked."""
    diff, masks = problem(rng, block, "a_mask", size=(200, 264, 312), density=0.9)
    want = oracle(rounded(diff, dtype), masks, block)
    diff["a"][~entries(masks["a_mask"], block, (200, 264))] = np.nan
    with js.config(variant=variant):
        got = run(cast(diff, dtype), masks, block, "cuda")
    assert_close(got, want, dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("block", [(32, 64), (64, 128), (96, 192)])
@pytest.mark.parametrize("density", [0.0, 0.05, 0.3, 1.0])
@pytest.mark.parametrize("which", ["a_mask", "a_mask b_mask"])
@pytest.mark.parametrize("variant", ["pieces", "panels"])
def test_cuda_pieces(rng, variant, dtype, block, density, which):
    """Tiles of 512 and of 128 rows, more than one each way, ragged edges, rings that come round."""
    diff, masks = problem(rng, block, which, size=(1100, 1032, 712), density=density)
    with js.config(variant=variant):
        got = run(cast(diff, dtype), masks, block, "cuda")
    assert_close(got, oracle(rounded(diff, dtype), masks, block), dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_cuda_panels_in_order(rng, dtype):
    """Rows of blocks that keep much and little: tiles go out by how much they have to do."""
    block = (128, 128)
    diff, masks = problem(rng, block, "a_mask", size=(2048, 640, 2304), density=0.0)
    rows, columns = masks["a_mask"].shape
    masks["a_mask"] = rng.random((rows, columns)) < (np.arange(rows) % 5 / 4)[:, None]
    with js.config(variant="panels"):
        got = run(cast(diff, dtype), masks, block, "cuda")
    assert_close(got, oracle(rounded(diff, dtype), masks, block), dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("variant", ["auto", "pieces", "panels"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("which", ["a_mask", "b_mask"])
def test_cuda_pieces_of_several_products(rng, variant, dtype, which):
    """More tiles than clusters, so that each has a second one; a float32 result; NaN in what is
    masked.
    """
    block, size = (128, 128), (1104, 520, 1224)  # rows of 16 bytes either way
    diff, masks = problem(rng, block, which, size, density=0.3, batch=(5,))
    want = oracle(rounded(diff, dtype), masks, block)
    name, shape = ("a", size[:2]) if which == "a_mask" else ("b", size[1:])
    diff[name][~entries(masks[which], block, shape)] = np.nan
    with js.config(variant=variant):
        got = run(cast(diff, dtype), masks, block, "cuda", preferred_element_type=jnp.float32)
    assert got.dtype == jnp.float32
    assert_close(got, want, dtype)


@pytest.mark.gpu
def test_cuda_float32_at_highest_precision(rng):
    diff, masks = problem(rng, (32, 64), "a_mask", size=(200, 264, 312))
    got = run(cast(diff, "float32"), masks, (32, 64), "cuda", precision="highest")
    assert np.abs(np.asarray(got) - oracle(diff, masks, (32, 64))).max() < 1e-4


def test_lowers_for_cuda(rng):
    """The choice of a variant, the workspace and the operands need no GPU."""
    if not table("masked_matmul", "cuda"):
        pytest.skip("this build has no CUDA module")
    diff, masks = problem(rng, (32, 64), size=(64, 128, 192))
    f = jax.jit(lambda d, m: run(d, m, (32, 64), None))
    arrays = {k: jnp.asarray(v) for k, v in masks.items()}
    lowered = f.trace(cast(diff, "bfloat16"), arrays).lower(lowering_platforms=("cuda",))
    assert "jaxsparse_masked_matmul" in lowered.as_text()


@settings(max_examples=12)
@given(
    data=st.data(),
    size=st.tuples(st.integers(0, 40), st.integers(0, 80), st.integers(0, 80)),
    block=st.tuples(st.integers(1, 40), st.integers(1, 70)),
    which=st.sampled_from(["a_mask", "b_mask", "out_mask", "a_mask b_mask out_mask"]),
    density=st.sampled_from([0.0, 0.2, 0.8, 1.0]),
)
def test_any_shape(implementation, data, size, block, which, density):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**31)))
    diff, masks = problem(rng, block, which, size, density)
    assert_close(
        run(cast(diff, "float32"), masks, block, implementation),
        oracle(diff, masks, block),
        "float32",
    )
