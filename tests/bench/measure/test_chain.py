"""A chain holds its calls and nothing else, and a wrong result cannot hide in it."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsparse as js
from jaxsparse.bench.measure.chain import ChainSide, Pool, compile_all, tolerance
from jaxsparse.bench.measure.timing import interleave

SHAPE = (1, 6, 7, 4)


def double(x, mask, operands):
    return jnp.where(mask[..., None], x * operands, jnp.zeros_like(x))


def call(i, x, operands):
    return jnp.where(masks()[i][..., None], x * operands, jnp.zeros_like(x))


def masks():
    return [jnp.asarray(np.random.default_rng(i).random(SHAPE[:3]) < 0.5) for i in range(3)]


@pytest.fixture
def pool():
    def draw(seed):
        return jnp.asarray(np.random.default_rng(seed).standard_normal(SHAPE, np.float32))

    return Pool(draw, double, jnp.float32(2), masks(), sets=2)


def test_right_chains_pass(pool):
    side = ChainSide("right", pool, call)
    before = jax.tree.map(np.asarray, pool.xs)
    took = interleave([side], samples=3)["right"]
    assert not took.failure
    assert took.error == 0.0
    assert took.wall_median > 0
    jax.tree.map(np.testing.assert_array_equal, before, jax.tree.map(np.asarray, pool.xs))


def test_inputs_are_distinct(pool):
    flat = [np.asarray(x) for xs in pool.xs for x in xs]
    assert len({x.tobytes() for x in flat}) == 6
    assert pool.rotated_bytes == sum(x.nbytes for x in flat)


@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_one_wrong_call_is_seen(pool, wrong):
    def off(i, x, operands):
        return call(i, x, operands) + jnp.float32(i == wrong)

    assert interleave([ChainSide("off", pool, off)], samples=1)["off"].error > 0.1


def test_nan_is_infinitely_wrong(pool):
    def broken(i, x, operands):
        return call(i, x, operands) * jnp.float32(jnp.nan)

    assert interleave([ChainSide("nan", pool, broken)], samples=1)["nan"].error == np.inf


def test_outputs_start_as_nan(pool):
    side = ChainSide("right", pool, call)
    side.enqueue(0)
    side.wait()
    assert side.error(0) == 0.0
    assert side.error(0) == np.inf, "buffers keep the last result: an op that writes nothing passes"


def test_only_active_pixels_of_a_dense_side_count(pool):
    def dense(i, x, operands):
        return x * operands

    took = interleave(
        [ChainSide("lenient", pool, dense, everywhere=False), ChainSide("strict", pool, dense)],
        samples=1,
    )
    assert took["lenient"].error == 0.0
    assert took["strict"].error > 0.1


def test_chains_copy_nothing_and_run_in_order(pool):
    text = ChainSide("right", pool, call).compiled.as_text()
    assert not re.search(r"\[\d\S* copy\(", text)  # numbers are copied
    if jax.default_backend() == "cpu":
        assert text.count(" while(") == 2, "calls after the first wait for the one before"


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="calls wait for each other on a CPU")
def test_a_call_that_reshapes_its_input_does_not_copy_it():
    """As `pruned_conv` does with a window of one pixel."""
    weight = np.random.default_rng(0).standard_normal((1, 1, 64, 32), np.float32)
    weight *= np.random.default_rng(1).random(weight.shape) < 0.2
    frozen = js.pruned.inspect(weight, kind="conv")

    def ours(i, x, operands):
        return js.pruned_conv(x, frozen)

    def want(x, own, operands):
        return jnp.einsum("bhwc,co->bhwo", x, weight[0, 0])

    def drawn(seed):
        return jnp.asarray(np.random.default_rng(seed).standard_normal((2, 9, 9, 64), np.float32))

    side = ChainSide("ours", Pool(drawn, want, None, [None] * 3), ours)
    assert "f32[2,9,9,64]{3,2,1,0} parameter(1)" in side.compiled.as_text()
    assert "f32[2,9,9,64]{3,2,1,0} copy(" not in side.compiled.as_text()
    assert interleave([side], samples=1)["ours"].error < 1e-5


def test_a_chain_that_goes_round_does_every_call_in_every_round(pool):
    """XLA hoists what does not depend on the round: nothing here, and it copies no input."""
    again = Pool(pool._draw, double, jnp.float32(2), masks(), sets=1, repeats=4)
    plain = ChainSide("right", again, call)
    copies = [x for x in plain.compiled.as_text().splitlines() if " copy(" in x]
    assert not [x for x in copies if "s32[] copy(" not in x]
    seen = []

    def count(x):
        seen.append(1)
        return x

    def counted(i, x, operands):
        return jax.pure_callback(count, jax.ShapeDtypeStruct(SHAPE, x.dtype), call(i, x, operands))

    side = ChainSide("counted", again, counted)
    assert side.calls == 3 * 4
    side.enqueue(0)
    side.wait()
    assert len(seen) == 3 * 4
    assert side.error(0) == 0.0
    took = interleave([plain], samples=1)["right"]
    assert (took.failure, took.error) == ("", 0.0)


def test_sides_that_do_not_compile_are_named(pool):
    sides = [ChainSide(name, pool, call, late=True) for name in ("right", "broken")]
    sides[1]._lowered = None
    assert list(compile_all([*sides, object()], 2)) == ["broken"]
    assert interleave(sides[:1], samples=1)["right"].error == 0.0


def test_a_failed_chain_leaves_the_others_their_inputs(pool):
    def fail(_):
        raise RuntimeError("lost")

    def failing(i, x, operands):
        return jax.pure_callback(fail, jax.ShapeDtypeStruct(SHAPE, x.dtype), x)

    sides = [ChainSide("failing", pool, failing), ChainSide("right", pool, call)]
    took = interleave(sides, samples=2)
    assert "lost" in took["failing"].failure
    assert not took["right"].failure
    assert took["right"].error == 0.0


def test_other_operands_need_no_new_chain(pool):
    side = ChainSide("right", pool, call)
    pool.load(jnp.float32(3), masks())
    assert interleave([side], samples=1)["right"].error == 0.0


def test_tolerance_knows_tf32():
    assert (
        tolerance("float32", "cuda") > tolerance("float32", "cpu") == tolerance("highest", "cuda")
    )
