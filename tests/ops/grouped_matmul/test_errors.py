"""Bad input to grouped_matmul and route: an error that names the argument, or the right result."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsparse as js
from jaxsparse.ffi import ffi_call

LHS, RHS = jnp.ones((6, 4)), jnp.ones((3, 4, 5))
SIZES = jnp.asarray([2, 1, 3], jnp.int32)
INDICES = jnp.arange(6, dtype=jnp.int32)


def call(**changed):
    arguments = {"lhs": LHS, "rhs": RHS, "group_sizes": SIZES, **changed}
    operands = [arguments.pop(name) for name in ("lhs", "rhs", "group_sizes")]
    return js.grouped_matmul(*operands, **arguments)


def test_the_positions_are_those_of_ragged_dot():
    arguments = (LHS, RHS, SIZES, "highest", jnp.float32, None, None)
    want = jax.lax.ragged_dot(*arguments)
    np.testing.assert_allclose(js.grouped_matmul(*arguments), want, atol=1e-6)


STATIC = {
    "num_rows": lambda n: call(scatter=INDICES, num_rows=n),
    "num_experts": lambda n: js.route(INDICES[:, None], n).group_sizes,
    "n": lambda n: js.lengths_mask(SIZES, n),
    "granularity": lambda n: js.masked_matmul(LHS, RHS[0], granularity=(n, 2)),
    "top_k": lambda n: js.nn.linen.MoE(9, 4, top_k=n).init(jax.random.key(0), LHS)["params"]["up"],
}


@pytest.mark.parametrize("name", STATIC)
def test_static_numbers(name):
    """Any integer scalar counts as the number; a traced one is named."""
    want = STATIC[name](6)
    for number in (np.int64(6), jnp.int32(6)):
        np.testing.assert_array_equal(STATIC[name](number), want)
    with pytest.raises(TypeError, match=f"^{name} is traced; it must be static"):
        jax.jit(STATIC[name])(6)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"group_sizes": np.asarray([2**40, 0, 0])}, "sum to 2147483647 or more"),
        ({"group_sizes": jnp.asarray([2, 1, 9], jnp.int32)}, "group_sizes sum to 12"),
        ({"group_sizes": jnp.asarray([2, -1, 3], jnp.int32)}, "smallest -1"),
        ({"group_sizes": jnp.asarray([2**31 - 1, 1, 0], jnp.int32)}, "sum to 2147483648"),
        ({"gather": INDICES.at[2].set(6)}, "gather has 1 indices out of range"),
        ({"scatter": INDICES.at[2].set(-4)}, "scatter has 1 indices out of range"),
    ],
)
def test_checked_raises_for_bad_data(changed, words):
    call(**changed).block_until_ready()
    with pytest.raises(Exception, match=words), js.checked():
        jax.block_until_ready(call(**changed))


def test_checked_raises_for_experts_that_do_not_exist():
    with js.checked():
        js.route(jnp.asarray([[0, -1], [2, -7]]), 3).order.block_until_ready()
    with pytest.raises(Exception, match="expert_ids has 2 ids past the 3 experts"), js.checked():
        jax.jit(js.route, static_argnums=1)(jnp.asarray([[0, 3], [-1, 9]]), 3)


def test_more_sorted_rows_than_the_kernels_count():
    rows = jax.ShapeDtypeStruct((2**31 - 1023,), jnp.int32)
    with pytest.raises(ValueError, match="2147482625 sorted rows; 2\\^31 - 1024 are supported"):
        jax.eval_shape(lambda gather: call(gather=gather), rows)
    fits = jax.ShapeDtypeStruct((2**31 - 1024,), jnp.int32)
    assert jax.eval_shape(lambda gather: call(gather=gather), fits).shape == (2**31 - 1024, 5)


@pytest.mark.parametrize("name", ["jaxsparse_grouped_matmul", "jaxsparse_grouped_matmul_drhs"])
def test_handlers_refuse_a_scatter_that_is_not_there(name):
    """`scatters` without its operand, and a result of another height: nothing is read past it."""
    index, weights = jnp.zeros(0, jnp.int32), jnp.zeros(0)
    attributes = {"sorted_rows": 6, "precision": 0, "variant": 0}
    if name == "jaxsparse_grouped_matmul":
        other, result = RHS, (6, 5)
        attributes |= {"scatters": True, "transpose_rhs": False}
    else:
        other, result = jnp.ones((5, 5)), (3, 4, 5)
    results = [(result, np.float32), ((1 << 20,), np.uint8)]
    operands = (LHS, other, SIZES, index, index, weights)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"disagree|scatter|the result must"):
        jax.block_until_ready(ffi_call(name, results, *operands, **attributes))


def test_wide_integers_do_not_wrap(rng):
    with jax.enable_x64(True):
        scatter = jnp.asarray([0, 2**32, 2**32 + 1, -(2**32), 4, 5])
        got = call(scatter=scatter)
    np.testing.assert_allclose(np.asarray(got)[:, 0], [4, 0, 0, 0, 4, 4])


def test_numpy_integers_do_not_wrap(implementation):
    """Without x64, jax would keep the low 32 bits."""
    rows = jnp.arange(1.0, 7.0)[:, None] * jnp.ones(4)
    sizes = np.array([2**32 + 1, 3, 0])
    got = call(lhs=rows, group_sizes=sizes, implementation=implementation)
    np.testing.assert_allclose(np.asarray(got)[:, 0], 4 * np.arange(1, 7))
    gather = np.array([2**32 + 1, 1, -(2**32) + 1])
    got = call(lhs=rows, gather=gather, implementation=implementation)
    np.testing.assert_allclose(np.asarray(got)[:, 0], [0, 8, 0])


def test_sizes_past_int32_in_sum(implementation):
    rhs = jnp.arange(1.0, 5.0)[:, None, None] * jnp.ones((4, 5))
    lhs = jnp.ones((20, 4))
    huge = jnp.asarray([10, 2**31 - 1, 2**31 - 1, 1], jnp.int32)

    def run(sizes):
        def total(lhs, rhs):
            y = js.grouped_matmul(lhs, rhs, sizes, implementation=implementation)
            return jnp.sum(y * jnp.arange(1.0, 21.0)[:, None])

        return jax.value_and_grad(total, (0, 1))(lhs, rhs)

    plain = jnp.asarray([10, 10, 0, 0], jnp.int32)
    jax.tree.map(np.testing.assert_allclose, run(huge), run(plain))
    told = js.explain(lambda: js.grouped_matmul(lhs, rhs, huge, implementation=implementation))
    assert told.calls[0].counts == [20]
    assert told.calls[0].overflows == 1


def test_donated_and_transposed_operands(rng):
    lhs = jnp.asarray(rng.standard_normal((4, 6), np.float32)).T
    want = call(lhs=lhs)
    f = jax.jit(lambda lhs: call(lhs=lhs), donate_argnums=0)
    with pytest.warns(UserWarning, match="donated"):
        np.testing.assert_array_equal(f(lhs + 0), want)
