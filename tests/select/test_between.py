"""Rates of shapes that were not measured."""

import math

import msgspec
import numpy as np
import pytest

import jaxsparse as js
from jaxsparse.select.masked_conv.between import dense_step, rates_for
from jaxsparse.select.roofline.machine import machine_of
from jaxsparse.select.table import DENSE, Rate, shipped
from jaxsparse.select.variants import table

H200 = shipped()["NVIDIA H200"]
SHAPES = sorted({r.shape for r in H200.rates if r.op == "masked_conv" and r.dtype == "bfloat16"})
UNSEEN = (9, 200, 600, 1), (25, 440, 592, 1), (1, 8, 640, 4), (49, 104, 400, 1)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_measured_shape_keeps_its_own_rates(shape):
    own = {r.variant: r for r in H200.rates if r.shape == shape and r.dtype == "bfloat16"}
    found = rates_for(H200, "bfloat16", shape)
    assert own.items() <= found.items()


@pytest.mark.parametrize("shape", UNSEEN)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_rates_between_shapes_lie_between_theirs(dtype, shape):
    found = rates_for(H200, dtype, shape)
    assert {r.shape for r in found.values()} == {shape}
    for name in ("m128n128", "m128n256", "box64"):
        every = [r for r in H200.rates if (r.dtype, r.variant) == (dtype, name) and r.shape]
        for rate in ("start", "step", "row_step", "fill"):
            values = [getattr(r, rate) for r in every]
            assert min(values) - 1e-4 <= getattr(found[name], rate) <= max(values) + 1e-4
    measured = {r.variant for r in H200.rates if r.dtype == dtype and r.shape}
    pairs = {n for n, row in table("masked_conv", "cuda").items() if row.fields.get("cluster") == 2}
    assert measured <= found.keys() <= measured | pairs  # a pair's follow from the single one's


def test_a_near_shape_counts_most():
    found = rates_for(H200, "bfloat16", (9, 255, 257, 1))["m128n256"]
    own = rates_for(H200, "bfloat16", (9, 256, 256, 1))["m128n256"]
    far = rates_for(H200, "bfloat16", (1, 64, 256, 1))["m128n256"]
    assert abs(found.row_step - own.row_step) < 0.25 * abs(far.row_step - own.row_step)


def leave_one_out(dtype):
    """The errors of the time of a dense convolution, as logarithms: by the rates in between, and by
    the nearest shape's."""
    dense = [r for r in H200.rates if (r.variant, r.dtype) == (DENSE, dtype) and r.shape]
    for one in dense:
        rates = tuple(r for r in H200.rates if r.shape != one.shape)
        others = msgspec.structs.replace(H200, rates=rates)
        between = rates_for(others, dtype, one.shape)[DENSE].step
        nearest = others.rates_of("masked_conv", dtype, one.shape)[DENSE].step
        yield abs(math.log(between / one.step)), abs(math.log(nearest / one.step))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_dense_convolutions_that_were_left_out(dtype):
    between, nearest = zip(*leave_one_out(dtype), strict=True)
    assert np.median(between) < 0.1 < np.median(nearest)
    assert sum(between) < 0.75 * sum(nearest)


def test_a_dense_convolution_is_bound_by_products_or_bytes():
    machine = machine_of(H200)
    products = 1e9 / machine.macs("bfloat16")
    assert dense_step(machine, "bfloat16", (9, 512, 512, 1)) == pytest.approx(products, rel=0.1)
    assert dense_step(machine, "bfloat16", (1, 64, 256, 1)) > 5 * products
    padded = dense_step(machine, "bfloat16", (9, 512, 264, 1))
    assert padded == pytest.approx(products * 384 / 264, rel=0.1)


def test_tables_without_shapes_serve_every_shape():
    rate = Rate("masked_conv", "bfloat16", "m128n128", 2.0, 3.0, 1.0)
    table = js.TuningTable(device="x", measured="", entries=(), rates=(rate,))
    assert rates_for(table, "bfloat16", (9, 64, 64, 1)) == {"m128n128": rate}
    assert rates_for(table, "float32", (9, 64, 64, 1)) == {}
