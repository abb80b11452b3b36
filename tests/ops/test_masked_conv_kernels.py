"""Which candidates share a kernel on CUDA: rows that stream K stand beside rows of 256 columns."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsparse.index.chosen import chosen_index, no_index
from jaxsparse.ops import masked_conv_device as device
from jaxsparse.ops.geometry import Geometry
from jaxsparse.ops.masked_conv_cost import Work
from jaxsparse.ops.masked_conv_run import ConvParams
from jaxsparse.select.costs import Candidate
from jaxsparse.select.table import shipped
from jaxsparse.select.variants import table

ROWS = table("masked_conv", "cuda")
TILES = ((1, 1), (8, 8))
needs_cuda_build = pytest.mark.skipif(not ROWS, reason="this build has no CUDA kernels")


def candidates_of(dtype, shape):
    """Every measured row over its list and over every tile, 256 -> 256 channels, 3x3."""
    tuning, index = shipped()["NVIDIA H200"], no_index(shape, TILES)
    nbytes = jnp.dtype(dtype).itemsize
    work = Work(9, 256, 256, nbytes, int(np.prod(shape)), 1)._replace(fills=True)
    known = ("masked_conv", dtype, work.shape)
    rates, near = tuning.rates_of(*known), tuning.nearest_shape(*known)
    found = {}
    for name, row in ROWS.items():
        if name not in rates or rates[name].shape not in (near, ()):
            continue
        place = int(bool(row.fields.get("box")))
        like = dataclasses.replace(index, tile=TILES[place])
        for at in (place, None):
            made = device._cost("cuda", row, rates[name], work, like, at)
            found[made.name] = made
    return index, found


@needs_cuda_build
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("shape", [(1, 512, 512), (8, 128, 128), (64, 40, 40), (64, 14, 14)])
def test_rows_that_stream_stand_beside_wide_ones(monkeypatch, dtype, shape):
    monkeypatch.setattr(device, "table_in_force", lambda platform: shipped()["NVIDIA H200"])
    index, found = candidates_of(dtype, shape)
    rows = [ROWS[c.variant] for c in device.portfolio("cuda", index, found)]
    assert 1 < len(rows) <= device.MOST
    streaming = [row for row in rows if row.fields.get("stream_k")]
    assert not streaming or all(device.wide(row) for row in rows)
    if shape == (1, 512, 512):
        assert streaming  # it gains most there


@needs_cuda_build
def test_every_row_that_streams_is_wide():
    assert [row.name for row in ROWS.values() if row.fields.get("stream_k")]
    assert all(device.wide(row) for row in ROWS.values() if row.fields.get("stream_k"))


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="the handler of a GPU")
def test_a_mixture_is_refused():
    if jax.devices()[0].compute_capability != "9.0":
        pytest.skip("these rows need compute capability 9.0")
    x, kernel = jnp.ones((1, 8, 8, 64), jnp.bfloat16), jnp.ones((3, 3, 64, 256), jnp.bfloat16)
    geometry = Geometry((1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), 1)
    params = ConvParams(geometry, None, "default", "bfloat16")
    cost = (1.0, 0.0, 0.0, 0.0, 0.0)
    mixed = tuple(Candidate(n, ROWS[n].number, 0, cost) for n in ("m128n256s", "m128n64"))
    index = chosen_index(jnp.ones((1, 8, 8), bool), ((1, 1),), mixed)
    with pytest.raises(Exception, match="streams K beside one of fewer than 256 columns"):
        jax.block_until_ready(
            device.forward(params, "cuda", mixed, x, kernel, None, None, index, None)
        )
