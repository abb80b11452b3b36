"""The upscaler on a video: frame by frame, from the activations of the frames before.

A block of pixels is held as it was when the network last read it, until the root mean square of
its change exceeds a threshold; so what the network reads is never further from the frame than
that. The layers compute what changed and the pixels within `reach` of it. A change can alter a
result as many pixels away as there are convolutions, but hardly does so beyond a few; what that
leaves out stays until the next refresh, which is the same step with a full mask. The bilinear
enlargement, to which the network adds detail, is always of the whole frame.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

import jaxsparse as js
from jaxsparse.mask import propagate
from models.edit_network import (
    TILE,
    Layer,
    Params,
    evaluate,
    multiplied_conv,
    sparse_layers,
)
from models.upscaler import image_of

FORMS = ("multiplied", "sparse")

BLOCK = (4, 4)  # pixels that are held, or read, together


class State(NamedTuple):
    """What is kept from frame to frame; donate it to a step, and it changes in place.

    Attributes:
        held: f32[1,H,W,1] in [0,1], the frame as the network read it.
        cache: f32[1,H,W,O], the result of each layer.
    """

    held: jax.Array
    cache: list[jax.Array]


def initial_state(table: Sequence[Layer], height: int, width: int) -> State:
    """Zeros; the first step is to be a refresh."""
    results = [jnp.zeros((1, height, width, layer.outputs), jnp.float32) for layer in table]
    return State(jnp.zeros((1, height, width, 1), jnp.float32), results)


def changed(x: jax.Array, held: jax.Array, threshold: jax.Array) -> jax.Array:
    """The blocks of BLOCK, as pixels bool[1,H,W], whose root mean square of x - held f32[1,H,W,1]
    exceeds the threshold f32[]. H and W are multiples of the block's.
    """
    b, h, w, _ = x.shape
    rows, columns = BLOCK
    blocks = jnp.square(x - held).reshape(b, h // rows, rows, w // columns, columns)
    far = blocks.mean((2, 4)) > jnp.square(threshold)
    return far.repeat(rows, 1).repeat(columns, 2)


def step(
    state: State,
    params: Params,
    frame: jax.Array,
    threshold: jax.Array,
    refresh: jax.Array,
    *,
    table: Sequence[Layer],
    reach: int,
    form: str = "sparse",
) -> tuple[State, jax.Array, jax.Array]:
    """The enlargement of the next frame.

    Args:
        state: after the frame before.
        params: of every layer.
        frame: luma uint8[1,H,W].
        threshold: f32[], of a block's change, of values in [0,1].
        refresh: bool[], computes everything.
        table: the layers.
        reach: pixels around a change that are computed; as many as there are layers are exact.
        form: "sparse" computes where the mask holds, "multiplied" everywhere, through XLA.

    Returns:
        (state, picture f32[1,2H,2W], what was computed bool[1,H,W]).

    Raises:
        ValueError: another form.
    """
    if form not in FORMS:
        raise ValueError(f"form={form!r}: it is one of {', '.join(FORMS)}")
    x = frame[..., None].astype(jnp.float32) / 255
    moved = changed(x, state.held, threshold) | refresh
    held = jnp.where(moved[..., None], x, state.held)
    mask = propagate(moved, 1 + 2 * reach)
    if form == "sparse":
        index = js.tile_index(mask, TILE)
        cache = sparse_layers(table, params, held, [index], state.cache)
    else:
        cache = []

        def conv(i: int, x: jax.Array, skip: jax.Array | None) -> jax.Array:
            cache.append(multiplied_conv(table[i], *params[i], x, mask, state.cache[i], skip))
            return cache[-1]

        evaluate(table, held, conv)
    return State(held, cache), image_of(x, cache[-1]), mask
