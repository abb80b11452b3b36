"""masked_matmul against float64 numpy: every granularity, masks on all three, gradients,
transforms, NaN in masked blocks.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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
