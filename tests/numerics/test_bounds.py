"""The error of every operation is within the bound that docs/numerics.md gives for it."""

import inspect

import jax
import numpy as np
import pytest
from numerics.cases import CASES
from numerics.promises import UNIT, promises

import jaxsparse as js
from jaxsparse.ffi.register import module

pytestmark = [
    pytest.mark.skipif(module("cpu")[0] is None, reason="no CPU module"),
    pytest.mark.skipif(jax.default_backend() == "gpu", reason="the bounds of a CPU"),
]
BOUNDED = [case for case in CASES if promises()[case.op].bound != "exact"]


def bound(case, dtype, y, size):
    """The page's formula, for every entry."""
    promise = promises()[case.op]
    terms = eval(promise.terms, {}, dict(case.sizes))
    known = {"K": terms, "e": UNIT[promise.sums], "S": size, "u": UNIT[dtype], "y": abs(y)}
    return eval(promise.bound, {}, known | case.sizes)


@pytest.mark.parametrize("case", BOUNDED, ids=str)
def test_the_error_is_within_the_bound(case):
    """In every dtype; and in float32 it is below a hundredth of the largest."""
    for dtype in case.dtypes:
        floats, data = case.operands(dtype)
        got, *_ = case.results(deterministic=True)(floats, data)
        assert got.dtype == dtype
        exact = {n: np.asarray(v).astype(np.float64) for n, v in floats.items()}
        plain = {n: np.asarray(v) for n, v in data.items()}
        y = case.meaning(**exact, **plain)
        sizes = exact if case.size else {n: abs(v) for n, v in exact.items()}
        most = bound(case, dtype, y, (case.size or case.meaning)(**sizes, **plain))
        error = abs(np.asarray(got, np.float64) - y)
        assert (error <= most).all(), (dtype, float((error - most).max()))
        if dtype == "float32":
            assert np.max(most) < 0.01 * abs(y).max(), "the bound allows anything"


def test_every_operation_has_a_row_and_a_case():
    takes = {
        name
        for name in js.__all__
        if name[0].islower()
        and inspect.isfunction(function := getattr(js, name))
        and "implementation" in inspect.signature(function).parameters
    }
    assert takes - {"config"} <= promises().keys()
    assert {case.op for case in CASES} >= promises().keys()
    assert len({str(case) for case in CASES}) == len(CASES)
