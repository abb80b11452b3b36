"""What comes in wrong or odd: a clear error, or the right result."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from bounded.stacks import blinking, layers_of, oracle, signed

import jaxsparse as js
from jaxsparse.recorder import MIXED, UPPER, ZERO

DATAFLOWS = ("row", "slab", "column", "converged")


def untidy(rng, n_out, n_in):
    """CSR with entries out of order, twice, explicitly zero, and rows without any."""
    indptr, indices, data = [0], [], []
    for row in range(n_out):
        if row % 3:
            columns = rng.integers(0, n_in, 7)
            indices += [*columns, columns[0], columns[3]]
            data += [*rng.standard_normal(7), 0.5, 0.0]
        indptr.append(len(indices))
    return sp.csr_matrix((np.array(data, "f4"), indices, indptr), (n_out, n_in))


@pytest.mark.parametrize("dataflow", DATAFLOWS)
def test_untidy_weights_in_a_layer(implementation, rng, dataflow):
    weight = untidy(rng, 45, 30)
    bias = rng.standard_normal(45).astype(np.float32)
    assert not weight.has_canonical_format
    x = rng.random((11, 30)).astype(np.float32)
    layer = js.bounded.inspect(weight.T, bias, 1.0)
    acts = js.bounded_matmul(
        jnp.asarray(x), layer, dataflow=dataflow, implementation=implementation
    )
    want = oracle(x, [weight], [bias], [1.0])
    np.testing.assert_allclose(acts.materialize(), want, atol=1e-5)


@pytest.mark.parametrize("fold", [True, False])
def test_untidy_weights_in_a_network(implementation, rng, fold):
    stack = [untidy(rng, 45, 30), untidy(rng, 37, 45)], [0.2, 0.1], [1.0, 6.0]
    x = rng.random((11, 30)).astype(np.float32)
    net = js.bounded.network(layers_of(stack, fold=fold), fold=fold, implementation=implementation)
    got = net(jnp.asarray(x)).materialize()
    np.testing.assert_allclose(got, oracle(x, *stack), atol=1e-5)


@pytest.mark.parametrize("dataflow", DATAFLOWS)
def test_positive_biases_wake_zero_rows(implementation, dataflow):
    # Zero rows do not stay zero, and rows at the bound do not stay there.
    layer = js.bounded.inspect(-np.eye(20), np.repeat([0.25, 9.0], 10), 1.0)
    assert not layer.zero_stays
    assert not layer.keeps_upper(1.0)
    x = jnp.asarray(np.repeat([[0.0], [1.0]], 20, 1), jnp.float32)
    before = js.bounded.Activations(x * jnp.nan, js.recorder.probe(x, 20, 1.0))
    acts = js.bounded_matmul(
        before, layer, dataflow=dataflow, segment=10, implementation=implementation
    )
    want = [[0.25] * 10 + [1.0] * 10, [0.0] * 10 + [1.0] * 10]
    np.testing.assert_array_equal(acts.materialize(), np.asarray(want, np.float32))
    np.testing.assert_array_equal(acts.recorder.codes, [[MIXED, UPPER], [ZERO, UPPER]])


@pytest.mark.parametrize("dataflow", DATAFLOWS)
@pytest.mark.parametrize("segment", [7, None])
def test_codes_are_set_and_cleared_at_every_layer(implementation, dataflow, segment):
    stack = blinking(24)
    rng = np.random.default_rng(3)
    x = np.where(rng.random((9, 24)) < 0.5, 0, 1).astype(np.float32)
    x[0], x[1] = 0, 1
    acts = jnp.asarray(x)
    for depth, layer in enumerate(layers_of(stack), 1):
        acts = js.bounded_matmul(
            acts, layer, dataflow=dataflow, segment=segment, implementation=implementation
        )
        upper = stack[2][depth - 1]
        want = oracle(x, *(part[:depth] for part in stack))
        np.testing.assert_allclose(acts.materialize(), want, atol=1e-5)
        codes = js.recorder.probe(acts.materialize(), acts.recorder.segment, upper).codes
        np.testing.assert_array_equal(acts.recorder.codes, codes)


@pytest.mark.parametrize("dataflow", ["row", "slab", "column"])
@pytest.mark.parametrize("batch", [1, 6, 1100])
def test_nan_and_inf_in_one_layer(implementation, rng, dataflow, batch):
    weights, biases, uppers = signed(rng, (24, 40))
    x = rng.random((batch, 24)).astype(np.float32)
    x[0, 3], x[-1, 5], x[-1, 7] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        want = oracle(x, weights, biases, uppers)
    (layer,) = layers_of((weights, biases, uppers))
    acts = js.bounded_matmul(
        jnp.asarray(x), layer, dataflow=dataflow, implementation=implementation
    )
    got = np.asarray(acts.materialize())
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_allclose(got, want, atol=1e-5)


@pytest.mark.parametrize("upper", [0, -0.0, -6.0, np.nan, -np.inf])
def test_bounds_that_are_not_positive(upper):
    with pytest.raises(ValueError, match="upper="):
        js.bounded.inspect(np.eye(3), 0.0, upper)


def test_widths_that_do_not_chain():
    narrow, wide = (js.bounded.inspect(np.ones((n, 3)), 0.0, 1.0) for n in (4, 5))
    acts = js.bounded_matmul(jnp.ones((2, 4)), narrow)
    with pytest.raises(ValueError, match=r"acts has 3 columns; the layer takes n_in=5 \(.*n_in"):
        js.bounded_matmul(acts, wide)
    with pytest.raises(ValueError, match="layer 1 takes 5 inputs; layer 0 has 3 outputs"):
        js.bounded.network([narrow, wide])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\t1\t1\n3\t1\t1\n", "line 2: field 1 is 3; it takes a whole number from 1 to 2"),
        ("1\t5\t1\n", "line 1: field 2 is 5; it takes a whole number from 1 to 4"),
        ("1\t1\t1\n\n", "line 2: 0 fields"),
        ("1\t1\tinf\n", "line 1: field 3 is inf; it takes a finite number"),
        ("1,1,1\n", "line 1: 1 fields; it takes 3"),
    ],
)
def test_broken_lines_of_images(tmp_path, text, message):
    path = tmp_path / "images.tsv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        js.bounded.read_images(path, 4, 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\n2\n9\n", "line 3: field 1 is 9; it takes a whole number from 1 to 5"),
        ("1\n2.5\n", "line 2: field 1 is 2.5"),
        ("1\n2 3\n", "line 2: 2 fields; it takes 1"),
        ("one\n", "line 1: 'one' holds no numbers"),
        ("0\n", "line 1: field 1 is 0"),
    ],
)
def test_broken_lines_of_categories(tmp_path, text, message):
    path = tmp_path / "categories.tsv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        js.bounded.read_categories(path, 5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1_0\t1\t0.5\n", "line 1: .*holds no numbers"),
        ("1\t1\t1e300\n", "line 1: field 3 is 1e[+]300; it takes a finite number"),
        ("1\t1\t0.5\n2\t1\t1\n1\t1\t0.5\n", "line 3: the same as line 1 over again"),
        ("1\t1\t0.5\n1\t\xff\t1\n", "line 2: .*holds no numbers"),
    ],
)
def test_lines_that_python_would_take(tmp_path, text, message):
    path = tmp_path / "layer.tsv"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=message):
        js.bounded.read_layer(path, 10)


@pytest.mark.parametrize("dataflow", [*DATAFLOWS, None])
def test_other_codes_are_mixed(implementation, dataflow):
    layer = js.bounded.inspect(np.eye(40), 0.0, 1.0)
    x = jnp.full((6, 40), 0.5)
    recorder = js.recorder.Recorder(jnp.full((6, 4), 3, jnp.uint8), 10, 1.0)
    acts = js.bounded_matmul(
        js.bounded.Activations(x, recorder), layer, dataflow=dataflow, implementation=implementation
    )
    np.testing.assert_array_equal(acts.materialize(), x)
    assert not np.asarray(acts.recorder.codes).any()


def test_a_recorder_that_does_not_fit_is_named():
    layer = js.bounded.inspect(np.eye(8), 0.0, 1.0)
    good = jnp.zeros((2, 4), jnp.uint8)
    for codes, segment, upper, kind, text in (
        (good[:, :3], 2, 1.0, ValueError, "recorder has codes"),
        (good[:1], 2, 1.0, ValueError, "recorder has codes"),
        (good.astype(jnp.int32), 2, 1.0, TypeError, "codes of int32"),
        (good, 0, 1.0, ValueError, "segment=0"),
        (good, 2, -6.0, ValueError, "upper=-6.0"),
    ):
        recorder = js.recorder.Recorder(codes, segment, upper)
        with pytest.raises(kind, match=text):
            js.bounded_matmul(js.bounded.Activations(jnp.ones((2, 8)), recorder), layer)


def test_options_that_are_no_bools():
    layer = js.bounded.inspect(np.eye(4), 0.0, 1.0)
    for options in ({"fold": "no"}, {"retire": "no"}):
        with pytest.raises(TypeError, match=f"{next(iter(options))} must be a bool"):
            js.bounded.network([layer], **options)
    with pytest.raises(TypeError, match="record must be a bool"):
        js.bounded_matmul(jnp.ones((1, 4)), layer, record="no")


def test_other_values_need_float32():
    layer = js.bounded.inspect(np.eye(4), 0.0, 1.0)
    net = js.bounded.network([layer, layer])
    for owner in (layer, net):
        with pytest.raises(TypeError, match="weights must be a float32 array, not bfloat16"):
            owner.with_values(jnp.asarray(owner.weights, jnp.bfloat16))
        with pytest.raises(TypeError, match="weights must be a float32 array, not list"):
            owner.with_values([1.0])
        with pytest.raises(ValueError, match="weights has shape"):
            owner.with_values(owner.weights[1:])


def test_weights_without_a_quarter_are_zeros():
    layer = js.bounded.inspect(np.array([[3e-45], [1.0]]), 0.0, 1.0)
    x = jnp.asarray([[jnp.inf, 0.5]], jnp.float32)
    np.testing.assert_array_equal(js.bounded_matmul(x, layer).materialize(), [[0.5]])
    np.testing.assert_array_equal(layer.to_dense(), [[0.0], [1.0]])


def test_converged_takes_layers_that_chain():
    layers = [js.bounded.inspect(np.eye(n), 0.0, 1.0) for n in (4, 5)]
    with pytest.raises(ValueError, match="layer 1 takes 5 inputs"):
        js.bounded.converged(layers)
    with pytest.raises(TypeError, match="threshold must be an int"):
        js.bounded.converged(layers[:1], threshold=1.5)
    with pytest.raises(ValueError, match="tolerance=nan"):
        js.bounded.converged(layers[:1], tolerance=float("nan"))
    assert js.bounded.converged(iter(layers[:1]))(jnp.ones((2, 4))).values.shape == (2, 4)


def test_categories_are_found_outside_of_jit():
    with pytest.raises(TypeError, match=r"acts are traced: .* outside of jit"):
        jax.jit(js.bounded.categories)(np.ones((2, 3), np.float32))
