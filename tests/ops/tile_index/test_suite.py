"""tile_index and TileIndex.from_words in the op suite, aligned to the grid and per component."""

import jax
import jax.numpy as jnp
import numpy as np
from index.oracles import component_tiles_of, listed, tiles_of, words_of
from ops.op_sharding import Split
from ops.op_spec import Fixed
from ops.op_suite import OpSpec, OpSuite

import jaxsparse as js

SHAPE, TILE = (2, 9, 37), (2, 4)
ALL, FEW = Fixed(None), Fixed(3)


def draw(rng, fill):
    return {"mask": rng.random(SHAPE) < fill, "capacity": ALL}


def parts(index):
    return index.ids, index.count, index.overflow, index.words


def by_shard(found):
    """The list in order: on a mesh, each shard's part of it is."""
    ids, *rest = map(np.asarray, found)
    order = np.lexsort(np.atleast_2d(ids.T)[::-1])
    held = ids.reshape(len(ids), -1)[:, 0] >= 0
    return np.concatenate([ids[order][held[order]], ids[~held]]), *rest


def apply(operands, implementation, align="grid"):
    options = {"capacity": operands["capacity"].value, "align": align, "ordered": True}
    return parts(js.tile_index(operands["mask"], TILE, **options, implementation=implementation))


def from_words(operands, implementation):
    words = js.pack_mask(operands["mask"], implementation=implementation)
    options = {"capacity": operands["capacity"].value, "ordered": True}
    return parts(
        js.TileIndex.from_words(words, SHAPE[2], TILE, **options, implementation=implementation)
    )


def want(operands, align="grid"):
    mask = operands["mask"]
    images = mask.shape[0]
    if align == "grid":
        ids, most = tiles_of(mask, TILE), images * 5 * 10
    else:
        ids, most = component_tiles_of(mask, TILE), mask.size
    room = operands["capacity"].value or most
    return listed(ids, room), np.int32(len(ids)), np.bool_(len(ids) > room), words_of(mask)


def overflow(rng, align="grid"):
    """The first three tiles are listed, and the flag is set."""
    operands = {**draw(rng, 0.4), "capacity": FEW}
    found = want(operands, align)
    assert found[2]
    return operands, found, None


MASK = np.ones((1, 8, 8), bool)


def call(**changed):
    return js.tile_index(**{"mask": MASK, "tile": (4, 4), **changed})


PAIR = r"it takes a pair \(height, width\) of positive ints"
BAD = {
    "rank": ({"mask": MASK[0]}, ValueError, r"mask has .* it needs \(B, H, W\)"),
    "dtype": ({"mask": MASK.astype(np.int32)}, TypeError, "has dtype int32; it takes bool"),
    "none": ({"mask": None}, TypeError, "mask must be an array, not NoneType"),
    "shape alone": (
        {"mask": jax.ShapeDtypeStruct((1, 8, 8), bool)},
        TypeError,
        "mask must be an array, not ShapeDtypeStruct",
    ),
    "tile int": ({"tile": 4}, TypeError, f"tile=4; {PAIR}"),
    "tile of three": ({"tile": (4, 4, 4)}, TypeError, rf"tile=\(4, 4, 4\); {PAIR}"),
    "tile zero": ({"tile": (0, 4)}, ValueError, rf"tile=\(0, 4\); {PAIR}"),
    "tile fraction": ({"tile": (2.0, 4)}, TypeError, rf"tile=\(2.0, 4\); {PAIR}"),
    "tile bool": ({"tile": (True, 4)}, TypeError, rf"tile=\(True, 4\); {PAIR}"),
    "capacity sign": ({"capacity": -1}, ValueError, "capacity=-1; it takes 0 to 2147483647"),
    "capacity past": ({"capacity": 2**31}, ValueError, "capacity=2147483648; it takes 0 to"),
    "capacity fraction": ({"capacity": 1.5}, TypeError, "capacity=1.5; it takes an int or None"),
    "capacity bool": ({"capacity": True}, TypeError, "capacity=True; it takes an int or None"),
    "ordered": ({"ordered": "yes"}, TypeError, "ordered must be a bool, not str"),
    "align": ({"align": "pixel"}, ValueError, "align='pixel'; it takes 'grid' or 'component'"),
}
BITS = "its operand is a mask"
NO_FLOATS = {
    "16_bits": BITS,
    "gradient": BITS,
    "gradient_of_16_bits": BITS,
    "second_derivative": BITS,
    "nothing_is_read_that_does_not_count": BITS,
}


class TestTileIndex(OpSuite):
    spec = OpSpec(
        name="tile_index",
        serves=(js.tile_index,),
        draw=draw,
        apply=apply,
        oracle=want,
        sharded=frozenset({"mask"}),
        split=Split({"mask": 0}, (0, None, None, 0), by_shard),
        empty=lambda rng: {"mask": np.zeros((0, *SHAPE[1:]), bool), "capacity": ALL},
        overflow=overflow,
        call=call,
        bad=BAD,
        inapplicable=NO_FLOATS,
    )


class TestComponentIndex(OpSuite):
    spec = OpSpec(
        name="tile_index, per component",
        serves=(js.tile_index,),
        draw=draw,
        apply=lambda operands, name: apply(operands, name, "component"),
        oracle=lambda operands: want(operands, "component"),
        sharded=frozenset({"mask"}),
        split=Split({"mask": 0}, (0, None, None, 0), by_shard),
        empty=lambda rng: {"mask": np.zeros((0, *SHAPE[1:]), bool), "capacity": ALL},
        overflow=lambda rng: overflow(rng, "component"),
        call=lambda **changed: call(**{"align": "component", **changed}),
        bad={"align": BAD["align"], "tile zero": BAD["tile zero"], "rank": BAD["rank"]},
        inapplicable=NO_FLOATS,
    )


WORDS = jnp.zeros((1, 8, 1), jnp.uint32)


class TestFromWords(OpSuite):
    spec = OpSpec(
        name="TileIndex.from_words",
        serves=(js.TileIndex.from_words,),
        draw=draw,
        apply=from_words,
        oracle=want,
        sharded=frozenset({"mask"}),
        split=Split({"mask": 0}, (0, None, None, 0), by_shard),
        empty=lambda rng: {"mask": np.zeros((0, *SHAPE[1:]), bool), "capacity": ALL},
        overflow=overflow,
        call=lambda **changed: js.TileIndex.from_words(
            **{"words": WORDS, "width": 8, "tile": (4, 4), **changed}
        ),
        bad={
            "dtype": (
                {"words": MASK},
                TypeError,
                r"words must be uint32\[B, H, ceil\(width/32\)\]",
            ),
            "width": ({"width": 40}, ValueError, "words has 1 words a row; width=40 does not fit"),
            "width type": ({"width": "8"}, TypeError, "width='8'; it takes an int"),
            "tile zero": BAD["tile zero"],
            "capacity sign": BAD["capacity sign"],
            "align": BAD["align"],
        },
        inapplicable=NO_FLOATS,
    )
