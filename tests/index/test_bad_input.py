"""Every refusal names the argument, what came, and what is needed."""

import jax
import jax.numpy as jnp
import pytest

import jaxsparse as js

MASK = jnp.ones((1, 8, 8), bool)


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"spatial_mask": MASK[0]}, ValueError, r"spatial_mask has shape \(8, 8\)"),
        (
            {"spatial_mask": MASK.astype(int)},
            TypeError,
            "spatial_mask has dtype int32; it takes bool",
        ),
        ({"spatial_mask": None}, TypeError, "spatial_mask must be an array, not NoneType"),
        ({"tile": 4}, TypeError, "tile=4"),
        ({"tile": (4, 4, 4)}, TypeError, r"tile=\(4, 4, 4\)"),
        ({"tile": (0, 4)}, ValueError, r"tile=\(0, 4\)"),
        ({"tile": (2.0, 4)}, TypeError, r"tile=\(2.0, 4\)"),
        ({"capacity": -1}, ValueError, "capacity=-1"),
        ({"capacity": 2**31}, ValueError, "capacity=2147483648"),
        ({"capacity": 1.5}, TypeError, "capacity=1.5"),
        ({"align": "pixel"}, ValueError, "align='pixel'; it takes 'grid' or 'component'"),
        ({"implementation": "metal"}, ValueError, "implementation"),
    ],
)
def test_tile_index(change, error, match):
    arguments = {"spatial_mask": MASK, "tile": (4, 4)} | change
    with pytest.raises(error, match=match):
        js.tile_index(arguments.pop("spatial_mask"), arguments.pop("tile"), **arguments)


@pytest.mark.parametrize("align", ["grid", "component"])
def test_more_tiles_than_int32_counts(align):
    shape = jax.ShapeDtypeStruct((8, 2**14, 2**14), jnp.bool_)
    with pytest.raises(ValueError, match="int32 ids take 2147483647"):
        jax.eval_shape(lambda m: js.tile_index(m, (1, 1), align=align), shape)
    fine = jax.eval_shape(lambda m: js.tile_index(m, (4, 4)), shape)
    assert fine.ids.shape == (2**27,)


def test_from_words():
    words = js.pack_mask(MASK)
    with pytest.raises(TypeError, match="words must be uint32"):
        js.TileIndex.from_words(MASK, 8, (4, 4))
    with pytest.raises(ValueError, match="width=40"):
        js.TileIndex.from_words(words, 40, (4, 4))
