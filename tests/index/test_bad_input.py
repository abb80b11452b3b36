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
        ({"implementation": 3}, TypeError, "implementation=3; it takes None"),
        ({"tile": (True, 4)}, TypeError, r"tile=\(True, 4\)"),
        ({"capacity": True}, TypeError, "capacity=True"),
        (
            {"spatial_mask": jax.ShapeDtypeStruct((1, 8, 8), bool)},
            TypeError,
            "spatial_mask must be an array, not ShapeDtypeStruct",
        ),
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
    with pytest.raises(TypeError, match="width='8'; it takes an int"):
        js.TileIndex.from_words(words, "8", (4, 4))


def test_bits_past_the_width_do_not_count():
    full = jnp.full((1, 8, 2), 2**32 - 1, jnp.uint32)
    index = js.TileIndex.from_words(full, 40, (4, 4))
    assert float(index.density()) == 1.0
    assert bool((index.words == js.pack_mask(jnp.ones((1, 8, 40), bool))).all())


@pytest.mark.parametrize("align", ["grid", "component"])
def test_a_list_is_no_longer_than_its_mask_can_fill(align):
    index = js.tile_index(MASK, (4, 4), capacity=10**8, align=align)
    assert index.capacity == index.ids.shape[0] == (4 if align == "grid" else 64)
    assert not index.may_overflow
