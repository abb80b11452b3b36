"""On a CPU a call looks at how many blocks are kept, and runs the dense product from a share on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ops.masked_matmul.test_masked_matmul import oracle, problem
from ops.op_suite import assert_close, cast

import jaxsparse as js

pytestmark = pytest.mark.skipif(jax.default_backend() != "cpu", reason="a choice of the CPU")

SIZE = (200, 160, 180)
#: Where the mask is, its blocks, and the share from which dense is expected to be faster, about.
CASES = [("a_mask", (8, 8), 0.72), ("b_mask", (32, 32), 0.63), ("out_mask", (16, 16), 0.51)]


def call(diff, masks, block, **options):
    return js.masked_matmul(diff["a"], diff["b"], **masks, granularity=block, **options)


def drawn(rng, which, block, density):
    diff, masks = problem(rng, block, which, SIZE, density)
    return cast(diff, "float32"), {k: jnp.asarray(v) for k, v in masks.items()}


def ran(*args, **options):
    (one,) = js.explain(lambda: call(*args, **options)).calls
    return one.variant(one.counts[0])


@pytest.mark.parametrize(("which", "block", "share"), CASES)
@pytest.mark.parametrize("off", [-0.2, 0.2])
def test_the_share_of_kept_blocks_chooses(rng, which, block, share, off):
    diff, masks = drawn(rng, which, block, share + off)
    assert ran(diff, masks, block) == ("auto" if off < 0 else "dense")
    assert_close(call(diff, masks, block), oracle(diff, masks, block), "float32")


@pytest.mark.parametrize(("which", "block", "share"), CASES)
def test_one_program_serves_every_share(rng, which, block, share):
    """Also the gradients', whose products have masks of their own."""
    compiled = jax.jit(jax.value_and_grad(lambda d, m: jnp.sin(call(d, m, block)).sum()))
    plain = jax.jit(
        jax.value_and_grad(
            lambda d, m: jnp.sin(call(d, m, block, implementation="reference")).sum()
        )
    )
    for density in (0.0, share / 2, share, 1.0):
        diff, masks = drawn(rng, which, block, density)
        for got, want in zip(
            jax.tree.leaves(compiled(diff, masks)),
            jax.tree.leaves(plain(diff, masks)),
            strict=True,
        ):
            assert_close(got, want, "float32", 4.0)
    assert compiled._cache_size() == 1  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(("which", "block", "share"), CASES)
def test_a_share_that_is_told_chooses_while_tracing(rng, which, block, share):
    for off, name in ((-0.1, "auto"), (0.1, "dense")):
        diff, masks = drawn(rng, which, block, share + off)
        given = {"density": share + off}
        assert ran(diff, masks, block, **given) == name
        lowered = jax.jit(lambda d, m, g=given: call(d, m, block, **g)).lower(diff, masks)
        text = lowered.compile().as_text()
        assert " conditional(" not in text
        assert ("jaxsparse_masked_matmul" in text) == (name == "auto")


def test_who_asks_for_the_kernels_gets_them(rng):
    diff, masks = drawn(rng, "a_mask", (8, 8), 1.0)
    assert ran(diff, masks, (8, 8), implementation="cpu") == "auto"
    with js.config(selection="static"):
        assert ran(diff, masks, (8, 8)) == "auto"


def test_small_products_fine_masks_and_two_masks_are_not_looked_at(rng):
    for which, block, size in (
        ("a_mask", (8, 8), (100, 160, 180)),  # 2.9 million multiply-adds
        ("a_mask", (1, 1), SIZE),  # 180 multiply-adds a block
        ("a_mask b_mask", (8, 8), SIZE),
    ):
        diff, masks = problem(rng, block, which, size, 1.0)
        given = {k: jnp.asarray(v) for k, v in masks.items()}
        assert ran(cast(diff, "float32"), given, block) == "auto"


def test_nan_behind_the_mask_reaches_neither(rng):
    """The dense product clears masked entries first."""
    for density in (0.3, 0.9):
        diff, masks = drawn(rng, "a_mask", (8, 8), density)
        want = oracle(diff, masks, (8, 8))
        off = ~np.asarray(masks["a_mask"]).repeat(8, 0).repeat(8, 1)[: SIZE[0], : SIZE[1]]
        spoilt = diff | {"a": jnp.where(off, jnp.nan, diff["a"])}
        assert_close(call(spoilt, masks, (8, 8)), want, "float32")
