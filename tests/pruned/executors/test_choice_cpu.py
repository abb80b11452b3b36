"""Which executor comes first on a CPU where nothing was tuned: what was measured to be faster, on
two cores; where the two are close, either may.
"""

import numpy as np
import pytest

import jaxsparse as js
from jaxsparse.core.geometry import Geometry
from jaxsparse.pruned import strips
from jaxsparse.pruned.executor import Problem
from jaxsparse.pruned.executors import choice as executors
from jaxsparse.pruned.executors import depthwise, dots

# (image side, inputs, outputs, window, stride), share pruned -> measured: dense over strips.
CONVS = [
    ((14, 179, 179, 3, 1), 0.0, 0.96),
    ((28, 179, 179, 3, 2), 0.0, 0.82),
    ((56, 64, 64, 3, 1), 0.0, 0.65),
    ((56, 64, 64, 3, 1), 0.3, 0.91),
    ((80, 96, 96, 3, 1), 0.15, 0.82),
    ((40, 192, 192, 3, 1), 0.3, 0.67),
    ((28, 256, 512, 1, 2), 0.15, 0.71),
    ((112, 3, 64, 7, 2), 0.0, 0.74),
    ((14, 179, 179, 3, 1), 0.5, 1.76),
    ((28, 89, 89, 3, 1), 0.5, 1.74),
    ((14, 256, 256, 3, 1), 0.5, 1.65),
    ((7, 512, 512, 3, 1), 0.3, 1.68),
    ((56, 64, 64, 3, 1), 0.7, 1.84),
    ((80, 96, 96, 3, 1), 0.9, 3.79),
    ((28, 256, 512, 1, 2), 0.9, 3.46),
    ((112, 3, 64, 7, 2), 0.9, 2.36),
]
# (rows, inputs, outputs), likewise.
PRODUCTS = [
    ((196, 179, 716), 0.0, 0.46),
    ((196, 179, 716), 0.3, 0.56),
    ((49, 2048, 358), 0.3, 0.84),
    ((49, 358, 2048), 0.3, 0.71),
    ((3136, 64, 256), 0.3, 0.72),
    ((1, 1024, 1024), 0.5, 0.31),
    ((64, 512, 2048), 0.3, 0.57),
    ((256, 1024, 1024), 0.5, 0.91),
    ((1024, 512, 512), 0.3, 0.75),
    ((196, 179, 716), 0.9, 2.60),
    ((49, 2048, 358), 0.7, 2.22),
    ((3136, 44, 44), 0.9, 1.74),
    ((8, 1024, 1024), 0.9, 2.43),
    ((1024, 512, 512), 0.9, 3.11),
]


def _kept(shape, share):
    """Weights of that shape with that share of zeros, at least one."""
    kept = np.random.default_rng(0).random(shape) >= share
    kept.flat[0] = False
    return kept.astype(np.float32)


def _first(problem, monkeypatch):
    monkeypatch.setattr("jaxsparse.pruned.executors.dense.workers", lambda: 2)
    for module in (strips, dots, depthwise):
        monkeypatch.setattr(module, "workers", lambda: 2)
    strips._best_tile.cache_clear()
    try:
        return executors.ranked(problem)[0]
    finally:
        strips._best_tile.cache_clear()


@pytest.mark.parametrize(("layer", "share", "ratio"), CONVS)
def test_convolutions(layer, share, ratio, monkeypatch):
    side, channels, outputs, window, stride = layer
    pruned = js.pruned.inspect(_kept((window, window, channels, outputs), share), kind="conv")
    pad = window // 2, window // 2
    geo = Geometry((stride, stride), (pad, pad), (1, 1), (1, 1), 1)
    shape = (1, side, side, channels)
    call = Problem(pruned.pattern, "cpu", shape, "float32", "float32", "default", geo)
    assert _first(call, monkeypatch) == ("dense" if ratio < 1 else "strips")


@pytest.mark.parametrize(("layer", "share", "ratio"), PRODUCTS)
def test_products(layer, share, ratio, monkeypatch):
    rows, inputs, outputs = layer
    pruned = js.pruned.inspect(_kept((inputs, outputs), share))
    call = Problem(pruned.pattern, "cpu", (rows, inputs), "float32", "float32", "default")
    assert _first(call, monkeypatch) == ("dense" if ratio < 1 else "strips")


@pytest.mark.parametrize(("inputs", "outputs"), [(512, 512), (512, 2048), (2048, 512)])
def test_one_row(inputs, outputs, monkeypatch):
    pruned = js.pruned.inspect(_kept((inputs, outputs), 0.9))
    call = Problem(pruned.pattern, "cpu", (1, inputs), "float32", "float32", "default")
    assert _first(call, monkeypatch) == "dots"


# XLA's convolution in as many groups as channels took 13 to 55 times as long, with whole kernels.
@pytest.mark.parametrize(("side", "channels", "stride"), [(112, 64, 2), (56, 128, 1), (7, 1024, 1)])
def test_depthwise_convolutions(side, channels, stride, monkeypatch):
    whole = js.pruned.inspect(
        np.ones((3, 3, 1, channels), np.float32), kind="conv", groups=channels
    )
    geo = Geometry((stride, stride), ((1, 1), (1, 1)), (1, 1), (1, 1), channels)
    shape = (1, side, side, channels)
    call = Problem(whole.pattern, "cpu", shape, "float32", "float32", "default", geo)
    assert _first(call, monkeypatch) == "depthwise"


@pytest.mark.parametrize(("outputs", "parts"), [(716, 1), (720, 2)])
def test_parts_of_rows_end_on_cache_lines(outputs, parts, monkeypatch):
    """Two workers that write one line at a time wait for each other: they take pixels instead."""
    monkeypatch.setattr(strips, "workers", lambda: 2)
    pruned = js.pruned.inspect(_kept((179, outputs), 0.83))
    call = Problem(pruned.pattern, "cpu", (196, 179), "float32", "float32", "default")
    strips._best_tile.cache_clear()
    packed = strips.pack(call)
    strips._best_tile.cache_clear()
    assert packed.parts == parts
