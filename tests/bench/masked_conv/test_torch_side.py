"""torch beside ours, where it is installed."""

import pytest

from jaxsparse.bench.masked_conv.run import Plan, measure
from jaxsparse.bench.masked_conv.torch_side import TorchConv
from jaxsparse.testing import case

pytest.importorskip("torch")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "highest"])
@pytest.mark.parametrize(
    "name", ["odd_plain", "odd_stride2", "odd_depthwise", "odd_dilation2", "odd_explicit"]
)
def test_torch_agrees(name, dtype):
    assert TorchConv.installed()
    plan = Plan(densities=(0.5,), samples=1, calls=3, rotate_mb=0.0, selections=(), variants=())
    (rows,) = measure(case(name), "random", dtype, plan, lambda side: None)
    assert {row.side for row in rows} == {"XLA dense", "torch"}
    assert all(row.correct for row in rows), rows
