"""The recorder's codes and the length of its segments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxsparse as js
from jaxsparse.recorder import MIXED, UPPER, ZERO


def test_codes_say_what_a_segment_holds():
    values = jnp.array([[0, 0, 6, 6, 6], [1, 6, 6, 0, 0], [0, jnp.nan, 0, 0, 6]], jnp.float32)
    recorder = js.recorder.probe(values, 2, 6.0)
    want = [[ZERO, UPPER, UPPER], [MIXED, MIXED, ZERO], [MIXED, ZERO, UPPER]]
    np.testing.assert_array_equal(recorder.codes, want)
    poisoned = jnp.where(recorder.spread(5) == MIXED, values, jnp.nan)
    np.testing.assert_array_equal(recorder.fill(poisoned), values)
    assert float(recorder.share(ZERO)) == pytest.approx(3 / 9)


@given(st.integers(1, 40), st.integers(1, 50), st.integers(0, 2**32 - 1))
def test_fill_inverts_probe(n, segment, seed):
    rng = np.random.default_rng(seed)
    values = rng.choice(np.array([0, 1, 1, 0.5], np.float32), (4, n), p=[0.4, 0.3, 0.2, 0.1])
    recorder = js.recorder.probe(jnp.asarray(values), segment, 1.0)
    codes = np.asarray(recorder.spread(n))
    np.testing.assert_array_equal(recorder.fill(np.where(codes, 7, values)), values)


def test_a_recorder_flows_through_jit_and_scan():
    values = jnp.ones((3, 8))
    acts = js.bounded.Activations(values, js.recorder.probe(values, 4, 1.0))
    again = jax.jit(lambda a: jax.tree.map(lambda v: v, a))(acts)
    assert again.recorder.segment == 4
    assert again.recorder.upper == 1.0
    out, _ = jax.lax.scan(lambda a, _: (a, None), acts, None, length=3)
    np.testing.assert_array_equal(out.materialize(), values)


def test_segments_are_as_the_counts_say():
    assert js.recorder.choose_segment(1024, 0.03) == 1024
    assert js.recorder.choose_segment(16384, 0.03, dataflow="slab") == 1024
    assert js.recorder.choose_segment(100, 0.5) == 100
    # Where nearly everything is at the bound, short segments find more of it.
    assert js.recorder.choose_segment(65536, 0.9995) < js.recorder.choose_segment(65536, 0.01)
    measured = [(0.1, 0.2), (0.9, 0.99)]
    m = js.recorder.choose_segment(4096, measured, shortest=32)
    costs = {
        s: sum(js.recorder.expected_accesses(4096, s, p, q, "row") for p, q in measured)
        for s in (32, 64, 128, 256, 512, 1024, 2048, 4096)
    }
    assert costs[m] == min(costs.values())


@pytest.mark.parametrize("dataflow", ["row", "slab", "column", "persistent"])
def test_a_recorder_costs_its_flags_and_saves_the_rest(dataflow):
    none = js.recorder.expected_accesses(4096, 1024, 0.0, 0.0, dataflow)
    full = js.recorder.expected_accesses(4096, 1024, 1.0, 1.0, dataflow)
    assert full <= 8 < none


def test_bad_counts():
    with pytest.raises(ValueError, match="p_in=2"):
        js.recorder.expected_accesses(8, 4, 2, 0.5, "row")
    with pytest.raises(ValueError, match="segment=0"):
        js.recorder.expected_accesses(8, 0, 0.5, 0.5, "row")


def test_without_codes_all_is_mixed():
    recorder = js.recorder.Recorder(jnp.zeros((3, 0), jnp.uint8), 4, 1.0)
    assert recorder.spread(8).shape == (3, 8)
    assert not np.asarray(recorder.spread(8)).any()
    assert float(recorder.share(js.recorder.MIXED)) == 1
    assert float(recorder.share(js.recorder.ZERO)) == 0


def test_choose_segment_names_what_it_does_not_take():
    with pytest.raises(ValueError, match="dataflow='slba'"):
        js.recorder.choose_segment(1 << 16, dataflow="slba")
    wanted = js.recorder.choose_segment(1 << 16, 0.5)
    assert js.recorder.choose_segment(1 << 16, np.float32(0.5)) == wanted
