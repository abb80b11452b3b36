"""Every refusal names the argument, what came, and what is needed."""

import jax
import jax.numpy as jnp
import pytest

import jaxsparse as js

MASK = jnp.ones((1, 8, 8), bool)


@pytest.mark.parametrize("align", ["grid", "component"])
def test_more_tiles_than_int32_counts(align):
    shape = jax.ShapeDtypeStruct((8, 2**14, 2**14), jnp.bool_)
    with pytest.raises(ValueError, match="int32 ids take 2147483647"):
        jax.eval_shape(lambda m: js.tile_index(m, (1, 1), align=align), shape)
    fine = jax.eval_shape(lambda m: js.tile_index(m, (4, 4)), shape)
    assert fine.ids.shape == (2**27,)


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
