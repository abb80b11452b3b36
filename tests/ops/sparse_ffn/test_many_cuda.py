"""The CUDA kernels of sparse_ffn for many tokens: the lists entry by entry, and the results against
float64, at every share of zeros, with lists that have no room, and at the edges of every tile.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ops.op_suite import assert_close
from ops.sparse_ffn.test_suite import hidden

import jaxsparse as js
from jaxsparse.ops.sparse_ffn import native
from jaxsparse.select.sparse_ffn.chooser import CHUNK, GROUP, ROOM
from jaxsparse.testing.ffn_cases import FfnCase

pytestmark = pytest.mark.gpu

DTYPES = ["bfloat16", "float16"]
#: tokens, d, f, d_out: within a tile, past the edges of all of them, and several tiles.
SIZES = [
    (9, 8, 8, 8),
    (17, 40, 520, 72),
    (530, 72, 1544, 136),
    (1040, 200, 1024, 320),
    (4096, 768, 3072, 768),
]
ZEROS = [0.0, 0.5, 0.97, 0.99, 1.0]


def numbers(array):
    return np.asarray(array.astype(jnp.float32), np.float64)


def problem(sizes, zeros, gated, dtype, seed=0):
    """Operands of which a share of the activations is zero, each token's own."""
    tokens, d, f, out = sizes
    rng = np.random.default_rng(seed)
    inner = min(max(zeros, 1e-6), 1 - 1e-6)
    x, first = FfnCase("", tokens, d, f, gated).steered(inner, seed)
    if zeros in (0.0, 1.0):
        first[0] = 30.0 if zeros == 0.0 else -30.0
    weights = {
        "w_up": rng.standard_normal((d, f)) / d**0.5,
        "w_down": rng.standard_normal((f, out)) / f**0.5,
    }
    weights |= {"w_gate": first} if gated else {"w_up": first}
    return {name: jnp.asarray(v, dtype) for name, v in {"x": x, **weights}.items()}


def oracle(given, activation):
    exact = {name: numbers(v) for name, v in given.items()}
    return hidden(exact, activation, None) @ exact["w_down"]


def decoded(lists, shape):
    """The matrix that lists say."""
    ids, values = np.asarray(lists.ids, np.int64), numbers(lists.values)
    counts = np.asarray(lists.counts)
    rows, columns = ids.shape[:2]
    found = np.zeros((rows * GROUP, columns * CHUNK))
    for r in range(rows):
        for c in range(columns):
            blocks = -(-counts[r, c, 0] // 16)
            names = ids[r, c].reshape(-1, 4, 4)[:blocks]  # block, q, i
            entries = values[r, c].reshape(-1, 8, 4, 4)[:blocks]  # block, row, q, i
            at = names >> 7
            np.testing.assert_array_equal(names, at * 128 + at % 4 * 32)
            for row in range(GROUP):  # a column may be there again, with zeros
                np.add.at(found[r * GROUP + row], c * CHUNK + at, entries[:, row])
            order = at.transpose(0, 2, 1).reshape(-1)[: counts[r, c, 0]]  # by place
            assert len(set(order)) == counts[r, c, 0]
    assert not found[shape[0] :].any()
    assert not found[:, shape[1] :].any()
    return found[: shape[0], : shape[1]]


def union(a):
    """How many columns a list of each eight rows and each chunk has."""
    rows, columns = -(-a.shape[0] // GROUP), -(-a.shape[1] // CHUNK)
    there = np.zeros((rows * GROUP, columns * CHUNK), bool)
    there[: a.shape[0], : a.shape[1]] = a != 0
    there = there.reshape(rows, GROUP, columns, CHUNK)
    return np.stack([there.any(1).sum(-1), there.sum((1, 3))], -1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 8), (13, 24), (8, 512), (29, 1000), (65, 2056)])
def test_lists(rng, dtype, shape):
    for share in (0.0, 0.005, 0.02, 1.0):
        drawn = np.where(rng.random(shape) < share, rng.standard_normal(shape), 0.0)
        a = jnp.asarray(drawn, dtype)
        lists = jax.jit(native.lists)(a)
        np.testing.assert_array_equal(lists.counts, union(numbers(a)))
        if bool(lists.fit):
            np.testing.assert_array_equal(decoded(lists, shape), numbers(a))
        assert int(lists.active) == np.count_nonzero(numbers(a))


def test_a_list_is_full_at_128_columns(rng):
    a = np.zeros((24, 3 * CHUNK), np.float32)
    a[9, CHUNK + rng.permutation(CHUNK)[:ROOM]] = 1
    lists = native.lists(jnp.asarray(a, jnp.bfloat16))
    assert bool(lists.fit)
    np.testing.assert_array_equal(decoded(lists, a.shape), a)
    a[8, CHUNK : 2 * CHUNK] = 2
    lists = native.lists(jnp.asarray(a, jnp.bfloat16))
    assert not bool(lists.fit)
    np.testing.assert_array_equal(lists.counts, union(a))


@pytest.mark.parametrize("dtype", DTYPES)
def test_lists_of_an_activation(rng, dtype):
    a = np.where(rng.random((21, 600)) < 0.05, rng.standard_normal((21, 600)), -1.0)
    a[3, 5], a[4, 6], a[5, 7] = np.nan, -0.0, np.inf
    a = jnp.asarray(a, dtype)
    lists = jax.jit(lambda a: native.lists(a, rectified=True))(a)
    np.testing.assert_array_equal(decoded(lists, a.shape), np.maximum(numbers(a), 0))
    lists = jax.jit(lambda a: native.lists(a, rectified=True, squared=True))(a)
    want = jax.nn.relu(a) * jax.nn.relu(a)
    np.testing.assert_array_equal(decoded(lists, a.shape), numbers(want))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("gated", [False, True])
def test_values(dtype, sizes, gated):
    for zeros in ZEROS:
        given = problem(sizes, zeros, gated, dtype)
        with js.config(variant="lists"):
            run = jax.jit(lambda g: js.sparse_ffn(**g, activation="relu2"))
            results = [run(given) for _ in range(4)]
        want = oracle(given, "relu2")
        scale = np.abs(want).max() or 1.0
        got = results[0].astype(jnp.float32) / scale
        assert_close(got, want / scale, dtype, 4.0)
        for again in results[1:]:
            np.testing.assert_array_equal(np.asarray(results[0]), np.asarray(again))


@pytest.mark.parametrize("gated", [False, True])
def test_rows_that_nothing_needs_are_not_read(gated):
    """So NaN says which products ran: those of the lists, or dense ones where one has no room."""
    given = problem((530, 64, 2048, 128), 0.99, gated, "bfloat16")
    first = "w_gate" if gated else "w_up"
    off = np.arange(2048) % 2 > 0
    given[first] = given[first].at[0, off].set(-30.0)
    want = oracle(given, "relu")
    given["w_down"] = given["w_down"].at[off].set(jnp.nan)
    if gated:
        given["w_up"] = given["w_up"].at[:, off].set(jnp.nan)
    with js.config(variant="lists"):
        run = jax.jit(lambda g: js.sparse_ffn(**g))
        assert_close(run(given).astype(jnp.float32), want, "bfloat16", 4.0)
        full = given | {first: given[first].at[0, : 2 * ROOM + 2 : 2].set(30.0)}
        assert np.isnan(np.asarray(run(full).astype(jnp.float32))).any()


@pytest.mark.parametrize("gated", [False, True])
def test_a_list_without_room(gated):
    """One token has many activations: the result is exact all the same."""
    given = problem((1040, 64, 2048, 128), 0.99, gated, "bfloat16")
    first = "w_gate" if gated else "w_up"
    given["x"] = given["x"].at[:, 1].set(0).at[517, 1].set(1)
    given[first] = given[first].at[1, : ROOM + 30].set(20.0)
    with js.config(variant="lists"):
        got = jax.jit(lambda g: js.sparse_ffn(**g))(given)
    want = oracle(given, "relu")
    scale = np.abs(want).max()
    assert_close(got.astype(jnp.float32) / scale, want / scale, "bfloat16", 4.0)


def test_more_blocks_than_one_pass_has():
    """Full lists: a second pass over w_up."""
    tokens, d, f, out = 520, 96, 1024, 64
    given = problem((tokens, d, f, out), 1.0, True, "bfloat16")
    some = np.arange(f) % CHUNK < ROOM - 3
    given["w_gate"] = given["w_gate"].at[0, some].set(1.0)
    with js.config(variant="lists"):
        got = jax.jit(lambda g: js.sparse_ffn(**g))(given)
    assert_close(got.astype(jnp.float32), oracle(given, "relu"), "bfloat16", 8.0)


def test_nan_and_infinity_stay_in_their_token():
    given = problem((40, 16, ROOM, 64), 1.0, True, "bfloat16")
    given["w_gate"] = given["w_gate"].at[0, 100].set(1.0)
    given["w_up"] = given["w_up"].at[0, 120].set(jnp.inf)  # a closed gate's
    given["x"] = given["x"].at[11, 3].set(jnp.nan)
    with js.config(variant="lists"):
        got = np.asarray(jax.jit(lambda g: js.sparse_ffn(**g))(given).astype(jnp.float32))
    bad = ~np.isfinite(got).all(1)
    assert bad[11]
    assert not np.delete(bad, 11).any()


def test_in_a_scan_and_under_vmap():
    given = problem((3 * 512, 64, 1024, 64), 0.99, True, "bfloat16")
    x, w = given.pop("x").reshape(3, 512, 64), given
    with js.config(variant="lists"):
        f = lambda x: js.sparse_ffn(x, **w)  # noqa: E731
        want = jnp.stack([f(each) for each in x])
        np.testing.assert_array_equal(jax.jit(jax.vmap(f))(x), want)
        _, got = jax.jit(lambda x: jax.lax.scan(lambda c, x: (c, f(x)), 0, x))(x)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("gated", [False, True])
def test_lists_run_where_they_are_asked_for(gated):
    given = problem((16384, 2048, 5632, 2048), 0.995, gated, "bfloat16")
    found = {}
    for settings, ran in (({}, "dense"), ({"variant": "lists"}, "lists")):
        with js.config(**settings):
            report = js.explain(lambda g: js.sparse_ffn(**g), given)
        (call,) = report.calls
        assert call.variant(call.counts[0]) == ran
        found[ran] = numbers(report.result)
    assert np.abs(found["lists"] - found["dense"]).max() < 0.02 * np.abs(found["dense"]).max()
