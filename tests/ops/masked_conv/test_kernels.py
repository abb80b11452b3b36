"""Which candidates share a kernel on CUDA: rows that split K or share weights, all over as many
CTAs. And rows that stream K, whose parts find each other in memory that is never cleared.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ops.op_suite import assert_close

import jaxsparse as js
from jaxsparse.core.geometry import Geometry
from jaxsparse.index.chosen import chosen_index
from jaxsparse.ops.masked_conv import device as device
from jaxsparse.ops.masked_conv.operands import Operands
from jaxsparse.ops.masked_conv.params import ConvParams
from jaxsparse.select.costs import Candidate
from jaxsparse.select.masked_conv import chooser
from jaxsparse.select.masked_conv import portfolio as kernels
from jaxsparse.select.masked_conv.problem import ConvProblem
from jaxsparse.select.table import shipped
from jaxsparse.select.variants import table

ROWS = table("masked_conv", "cuda")
TILES = ((1, 1), (8, 8))
needs_cuda_build = pytest.mark.skipif(not ROWS, reason="this build has no CUDA kernels")


def problem_of(dtype, shape):
    """256 -> 256 channels, 3x3."""
    geometry = Geometry((1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), 1)
    sizes = (*shape, 256), (3, 3, 256, 256), shape
    nbytes = jnp.dtype(dtype).itemsize
    return ConvProblem("cuda", *sizes, dtype, nbytes, geometry, "default", TILES)


def candidates_of(dtype, shape, cluster=1):
    """Every measured row over its list and over every tile."""
    with js.config(tuning=shipped()["NVIDIA H200"]):
        return chooser.costs(problem_of(dtype, shape), cluster=cluster)


@needs_cuda_build
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize(
    "shape", [(1, 512, 512), (8, 128, 128), (64, 40, 40), (64, 14, 14), (1, 40, 40)]
)
def test_which_rows_share_a_call(dtype, shape):
    with js.config(tuning=shipped()["NVIDIA H200"]):
        chosen = chooser.candidates(problem_of(dtype, shape)).together
    rows = [ROWS[c.variant] for c in chosen]
    assert 1 < len(rows) <= kernels.MOST
    streaming = any(row.fields["stream_k"] for row in rows)
    splitting = {kernels.parts(row) for row in rows} - {1}
    assert len(splitting) <= 1
    assert streaming or shape != (1, 512, 512)  # it gains most there
    assert splitting == {4} or shape != (1, 40, 40)
    assert splitting == {2} or shape != (64, 14, 14)


@needs_cuda_build
def test_rows_that_split_cost_what_clusters_hold():
    """Rows of one CTA a tile have fewer at once in clusters; those that split K always have."""
    single = candidates_of("bfloat16", (1, 512, 512))
    in_fours = candidates_of("bfloat16", (1, 512, 512), cluster=4)
    splitting = [n for n in single if n in ROWS and kernels.splits(ROWS[n])]
    assert splitting
    assert all(single[n] == in_fours[n] for n in splitting)
    few, many = in_fours["m128n128"].cost[4], single["m128n128"].cost[4]
    assert few == pytest.approx(116 / 132 * many, rel=0.01)


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="the handler of a GPU")
@pytest.mark.parametrize("names", [("m128n64k4", "m128n64k2"), ("m128n256c2", "m128n64k4")])
def test_rows_that_split_differently_are_refused(names):
    if jax.devices()[0].compute_capability != "9.0":
        pytest.skip("these rows need compute capability 9.0")
    x, kernel = jnp.ones((1, 8, 8, 64), jnp.bfloat16), jnp.ones((3, 3, 64, 256), jnp.bfloat16)
    geometry = Geometry((1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), 1)
    params = ConvParams(geometry, None, "default", "bfloat16")
    cost = (1.0, 0.0, 0.0, 0.0, 0.0)
    mixed = tuple(Candidate(n, ROWS[n].number, 0, cost) for n in names)
    index = chosen_index(jnp.ones((1, 8, 8), bool), ((1, 1),), mixed)
    with pytest.raises(Exception, match="clusters of different sizes"):
        jax.block_until_ready(device.forward(params, "cuda", mixed, *Operands(x, kernel, index)))


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="the handler of a GPU")
@pytest.mark.parametrize("base", [False, True])
@pytest.mark.parametrize("split", [None, "m128n256c2", "m128n64k2", "m128n64k4", "m128n128k4"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("outputs", [128, 392])
def test_every_candidate_of_a_call(rng, outputs, dtype, split, base):
    """Rows of one CTA a tile, some of which stream K, alone and beside one that splits it or shares
    weights; counts from none to several tiles each; outputs of less than a tile and more than one.
    """
    if jax.devices()[0].compute_capability != "9.0":
        pytest.skip("these rows need compute capability 9.0")
    names = ("m128n64", "m256n64", "box64", "m128n256s", "box256s") + ((split,) if split else ())
    shape = (3, 104, 104)
    x = jnp.asarray(rng.standard_normal((*shape, 64)), dtype)
    kernel = jnp.asarray(rng.standard_normal((3, 3, 64, outputs)) / 24, dtype)
    before = jnp.asarray(rng.standard_normal((*shape, outputs)), dtype) if base else None
    geometry = Geometry((1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), 1)
    params = ConvParams(geometry, None, "default", dtype)
    cost = (1.0, 0.0, 0.0, 0.0, 0.0)
    places = [int(bool(ROWS[n].fields["box"])) for n in names]
    candidates = tuple(
        Candidate(n, ROWS[n].number, at, cost) for n, at in zip(names, places, strict=True)
    )

    @jax.jit
    def run(mask, choice):
        index = chosen_index(mask, TILES, candidates)
        index = dataclasses.replace(index, choice=choice)
        return device.forward(params, "cuda", candidates, *Operands(x, kernel, index, base=before))

    for density in (0.0, 0.0002, 0.02, 1.1):
        mask = jnp.asarray(rng.random(shape) < density)
        want = js.masked_conv(x, kernel, mask, base=before, implementation="reference")
        for number in range(len(names)):
            assert_close(run(mask, jnp.int32(number)), want, dtype)


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="the handler of a GPU")
@pytest.mark.parametrize(("variant", "tile"), [("m128n256s", (1, 1)), ("box256s", (8, 8))])
def test_parts_of_one_call_are_no_parts_of_the_next(rng, variant, tile):
    """Call after call in the same memory, with fewer parts each: flags of a call that were not
    taken back, and that no other call sets, would be there when it is replayed.
    """
    if jax.devices()[0].compute_capability != "9.0":
        pytest.skip("these rows need compute capability 9.0")
    x = jnp.asarray(rng.standard_normal((2, 64, 64, 256)), jnp.bfloat16)
    kernel = jnp.asarray(rng.standard_normal((3, 3, 256, 256)) / 48, jnp.bfloat16)
    masks = [jnp.zeros(x.shape[:3], bool).at[:, :lines].set(True) for lines in (48, 24, 8)]

    def run_as(name):
        def body(i, x):
            for mask in masks:
                x = js.masked_conv(x, kernel, js.tile_index(mask, tile), base=x)
            return x

        with js.config(variant=name):
            run = jax.jit(lambda x: jax.lax.fori_loop(0, 8, body, x)).lower(x).compile()
        return [np.asarray(run(x).astype(jnp.float32)) for _ in range(10)]

    first, *again = run_as(variant)
    assert all(np.array_equal(first, other) for other in again)
    whole = run_as("m128n256")[0]  # the same products, a tile's K in one sum
    assert np.linalg.norm(first - whole) < 0.05 * np.linalg.norm(whole)


@pytest.mark.gpu
@needs_cuda_build
@pytest.mark.parametrize("base", [False, True])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_streams_over_two_tiles_of_columns(rng, dtype, base):
    """64 -> 232 channels in tiles of 192 columns, of which the second is cut: rows for one tile,
    for less than a wave of 132, for a wave and a part, and for whole waves, which nothing streams.
    """
    if jax.devices()[0].compute_capability != "9.0":
        pytest.skip("this row needs compute capability 9.0")
    shape, outputs = (4, 72, 64), 232
    x = jnp.asarray(rng.standard_normal((*shape, 64)), dtype)
    kernel = jnp.asarray(rng.standard_normal((3, 3, 64, outputs)) / 24, dtype)
    before = jnp.asarray(rng.standard_normal((*shape, outputs)), dtype) if base else None
    order = rng.permutation(np.prod(shape))
    with js.config(variant="m128n192s", selection="static"):
        run = jax.jit(lambda mask: js.masked_conv(x, kernel, mask, base=before))
        for rows in (1, 128 * 40 + 5, 128 * 70, 128 * 132, 128 * 140 + 77):
            mask = jnp.asarray((order < rows).reshape(shape))
            want = js.masked_conv(x, kernel, mask, base=before, implementation="reference")
            assert_close(run(js.tile_index(mask, (1, 1))), want, dtype)
