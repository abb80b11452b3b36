"""A network of `graph` on a screen that changes a little: frame by frame, from the
activations of the frame before.

What changed is found on the device, by comparing frames, and goes from layer to layer as a mask.
Convolutions are `js.masked_conv` on the activations before. What lies between two convolutions is
one expression, evaluated tile by tile of the same index; a pixel of its result that moves by no
more than a threshold keeps its old value, and what reads it does not see a change. So no pixel is
further than its threshold from what the network makes of its inputs, however many frames went by.

Global pooling sees all pixels: any change changes every pixel behind it a little. The factors of
channels that it leads to (squeeze-excite) are held as they are at the last refresh, which computes
all of the network.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

import jaxsparse as js
from jaxsparse.mask import propagate
from models.detector.graph import Graph, Node, Values, apply, enlarge, evaluate, xla_conv

ENLARGE = ("Resize", "Shuffle")
MOST = 16  # of a tile's height and width


class State(NamedTuple):
    """What is kept from frame to frame; a step takes its buffers.

    Attributes:
        frame: uint32[1,H,W], as the screen has it.
        values: f32[1,h,w,C] of each stored tensor.
        held: f32[1,1,1,C] of each tensor behind a global pooling.
        thresholds: f32[] of each tensor that is compared.
    """

    frame: jax.Array
    values: Values
    held: Values
    thresholds: Values


class Plan(NamedTuple):
    """Which tensors are stored, which held, and the step's order."""

    graph: Graph
    makers: dict[str, Node]
    stored: tuple[str, ...]  # in order of evaluation
    held: frozenset[str]


def plan(graph: Graph) -> Plan:
    """Stored are what convolutions read and write, and the output; held what global pooling
    leads to.
    """
    makers = {node.output: node for node in graph.nodes}
    held: set[str] = set()
    for node in graph.nodes:
        given = [name for name in node.inputs if name not in graph.constants]
        if node.op == "GlobalAveragePool" or held.issuperset(given):
            held.add(node.output)
    convs = [n for n in graph.nodes if n.op == "Conv" and n.output not in held]
    wanted = {graph.output, *(n.output for n in convs), *(n.inputs[0] for n in convs)}
    ordered = [node.output for node in graph.nodes if node.output in wanted]
    return Plan(graph, makers, (graph.input, *ordered), frozenset(held))


def masked_everywhere(node: Node, x: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
    """The convolution of a node at every pixel, by the kernel that also computes some of them."""
    if x.shape[1:3] == (1, 1):
        return xla_conv(node, x, kernel, bias)
    shape = jax.eval_shape(functools.partial(xla_conv, node), x, kernel, bias).shape
    return _conv(node, x, kernel, bias, jnp.ones(shape[:3], bool), None)


def _conv(node: Node, x: jax.Array, kernel: Any, bias: Any, mask: Any, base: Any) -> jax.Array:
    static = node.static
    return js.masked_conv(
        x,
        kernel,
        mask,
        strides=static["strides"],
        padding=static["padding"],
        dilation=static["dilation"],
        groups=static["groups"],
        bias=bias,
        base=base,
    )


def refresh(
    plan: Plan,
    params: Mapping[str, jax.Array],
    frame: jax.Array,
    unpack: Callable[[jax.Array], jax.Array],
    threshold: float,
) -> State:
    """All of the network on a frame uint32[1,H,W]; `unpack` makes it f32[1,H,W,C].

    A tensor's threshold is `threshold` of its standard deviation.
    """
    values = evaluate(plan.graph, params, unpack(frame), masked_everywhere)
    compared = [name for name in plan.stored if _is_compared(plan, name)]
    return State(
        frame,
        {name: values[name] for name in plan.stored},
        {name: values[name] for name in plan.held},
        {name: threshold * values[name].std() for name in compared},
    )


def _is_compared(plan: Plan, name: str) -> bool:
    return name in plan.makers and plan.makers[name].op != "Conv"


def _leaves(plan: Plan, name: str, factor: int = 1) -> dict[tuple[str, int], None]:
    """The stored tensors that the expression of `name` reads, with how often each is enlarged."""
    found: dict[tuple[str, int], None] = {}
    node = plan.makers[name]
    scale = factor * node.static["factor"] if node.op in ENLARGE else factor
    for each in node.inputs:
        if each in plan.stored:
            found[each, scale] = None
        elif each not in plan.graph.constants and each not in plan.held:
            found |= _leaves(plan, each, scale)
    return found


def tile_of(height: int, width: int) -> tuple[int, int]:
    """The largest powers of two, to MOST, that divide the two: tiles leave no rest."""
    rows, columns = (min(MOST, n & -n) for n in (height, width))
    return rows, columns


class Step:
    """One step while it is traced: the values so far, and where each changed."""

    def __init__(self, plan: Plan, params: Mapping[str, jax.Array], state: State) -> None:
        self.plan, self.params, self.held = plan, params, state.held
        self.values, self.thresholds = dict(state.values), state.thresholds
        self.masks: Values = {}
        self.indices: dict[int, tuple[jax.Array, js.TileIndex]] = {}

    def index(self, mask: jax.Array) -> js.TileIndex:
        """The index of a mask; one for all that share the mask."""
        if id(mask) not in self.indices:
            tile = tile_of(*mask.shape[1:])
            self.indices[id(mask)] = mask, js.tile_index(mask, tile)
        return self.indices[id(mask)][1]

    def convolve(self, name: str) -> None:
        """A convolution, where its windows meet what changed."""
        node = self.plan.makers[name]
        x, kernel, bias = node.inputs
        static, before = node.static, self.masks[x]
        window = self.params[kernel].shape[:2]
        mask = before
        if (*window, *static["strides"]) != (1, 1, 1, 1):
            mask = propagate(
                before, window, static["strides"], static["padding"], static["dilation"]
            )
        weights = self.params[kernel], self.params[bias]
        base = self.values[name]
        self.values[name] = _conv(node, self.values[x], *weights, self.index(mask), base)
        self.masks[name] = mask

    def compare(self, name: str) -> None:
        """An expression, tile by tile; where it moved by more than the threshold it is stored."""
        masks = []
        for leaf, factor in _leaves(self.plan, name):
            mask = self.masks[leaf]
            masks.append(mask.repeat(factor, 1).repeat(factor, 2) if factor > 1 else mask)
        mask = functools.reduce(jnp.logical_or, masks)

        def tile(origin: Any, size: tuple[int, int]) -> jax.Array:
            return self.tile(name, origin, size, root=True)

        threshold = self.thresholds[name]
        self.values[name], self.masks[name] = update_tiles(
            self.values[name], self.index(mask), mask, tile, threshold
        )

    def tile(self, name: str, origin: Any, size: tuple[int, int], root: bool = False) -> jax.Array:
        """The pixels of a tensor from `origin` (y, x) on, from those of stored tensors."""
        if name in self.params or name in self.held:
            return self.params[name] if name in self.params else self.held[name]
        if name in self.values and not root:
            return slice_tile(self.values[name], origin, size)
        node = self.plan.makers[name]
        if node.op in ENLARGE:
            factor = node.static["factor"]
            small = size[0] // factor, size[1] // factor
            inner = tuple(n // factor for n in origin)
            return enlarge(node, self.tile(node.inputs[0], inner, small))
        return apply(node, [self.tile(each, origin, size) for each in node.inputs])


def slice_tile(x: jax.Array, origin: Any, size: tuple[int, int]) -> jax.Array:
    """[1,th,tw,...] of [1,H,W,...], from (y, x) on."""
    starts = (0, *origin, *([0] * (x.ndim - 3)))
    return lax.dynamic_slice(x, starts, (1, *size, *x.shape[3:]))


def update_tiles(
    old: jax.Array,
    index: js.TileIndex,
    mask: jax.Array,
    tile: Callable[[Any, tuple[int, int]], jax.Array],
    threshold: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """`old` [1,H,W,C] with the pixels of the mask that `tile` gives another value, and which.

    Args:
        old: what is stored; its buffer becomes the result's where it is donated.
        index: of the mask; its tiles divide H and W.
        mask: bool[1,H,W].
        tile: `tile(origin, size)` is the new value f32[1,th,tw,C] of a tile.
        threshold: f32[]; a pixel none of whose channels moves by more keeps its old value.

    Returns:
        (values [1,H,W,C], where they are new bool[1,H,W]).
    """
    size = index.tile
    columns = mask.shape[2] // size[1]

    # A tile is written before the next one is read: were it read first, XLA would copy `values` for
    # each tile, since it fuses the read with what comes after the write.
    def body(i: jax.Array, carry: Any) -> Any:
        values, moved, new, last = carry
        values = lax.dynamic_update_slice(values, new, (0, *last, 0))
        at = index.ids[i]
        origin = at // columns * size[0], at % columns * size[1]
        new, before = tile(origin, size), slice_tile(values, origin, size)
        far = (jnp.abs(new - before) > threshold).any(-1) & slice_tile(mask, origin, size)
        moved = lax.dynamic_update_slice(moved, far, (0, *origin))
        return values, moved, jnp.where(far[..., None], new, before), origin

    start = jnp.int32(0), jnp.int32(0)
    first = old, jnp.zeros_like(mask), slice_tile(old, start, size), start
    values, moved, new, last = lax.fori_loop(0, index.count, body, first)
    return lax.dynamic_update_slice(values, new, (0, *last, 0)), moved


def step(
    state: State,
    plan: Plan,
    params: Mapping[str, jax.Array],
    frame: jax.Array,
    unpack: Callable[[jax.Array], jax.Array],
) -> tuple[State, Values]:
    """The network on the next frame uint32[1,H,W]; donate the state, and it changes in place.

    Returns:
        (state, the mask bool[1,h,w] of each stored tensor: computed, or moved where compared).
    """
    traced = Step(plan, params, state)
    changed = frame != state.frame
    source = plan.graph.input
    traced.masks[source] = changed
    traced.values[source], _ = update_tiles(
        traced.values[source],
        traced.index(changed),
        changed,
        lambda origin, size: unpack(slice_tile(frame, origin, size)),
        jnp.float32(0),
    )
    for name in plan.stored[1:]:
        if plan.makers[name].op == "Conv":
            traced.convolve(name)
        else:
            traced.compare(name)
    return State(frame, traced.values, state.held, state.thresholds), traced.masks
