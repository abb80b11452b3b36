"""`masked_conv_stack`: masked convolutions of one size, one after the other, on one index.

On a Hopper GPU a stack of 32 or 64 channels of 16 bits is one launch; everywhere else, and in
gradients, it goes layer by layer.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from jaxsparse.core.activations import CODES
from jaxsparse.core.batching import kept
from jaxsparse.core.checks import as_array, check_activation, check_float, check_rank
from jaxsparse.core.differentiable import differentiable, tangent_of
from jaxsparse.core.types import Activation
from jaxsparse.core.variables import takes_variables
from jaxsparse.ffi import (
    Implementation,
    Rule,
    Shards,
    absent,
    dispatch,
    ffi_call,
    lift,
    partitioned,
)
from jaxsparse.ffi.platform import NAMES, implementation_key, plan
from jaxsparse.index import TileIndex
from jaxsparse.index.broadcast import fit_mask
from jaxsparse.index.tile_index import build_index
from jaxsparse.index.types import cover_words, index_of_words
from jaxsparse.index.visited import slots_of
from jaxsparse.ops.masked_conv.api import masked_conv
from jaxsparse.select.choice import Choice
from jaxsparse.select.config import override, settings
from jaxsparse.select.explain import check_overflow
from jaxsparse.select.explain import record as explain_call
from jaxsparse.select.masked_conv_stack import (
    MAX_LAYERS,
    ONE_LAUNCH,
    OP,
    StackProblem,
    against,
)
from jaxsparse.select.select import choose

BLOCK = (8, 8)  # what one launch is made of
_BITS = 5  # of a layer, in an attribute

Results = tuple[jax.Array, ...]


@dataclasses.dataclass(frozen=True)
class _Spec:
    """What is static about one stack: `residuals[l]` is the layer whose result layer l adds, -1 x,
    None none.
    """

    activations: tuple[Activation | None, ...]
    residuals: tuple[int | None, ...]
    implementation: Any


class _Operands(NamedTuple):
    """What one stack takes, a kernel, a bias or None, and a base for each layer."""

    x: jax.Array
    kernels: Sequence[jax.Array]
    biases: Sequence[jax.Array | None]
    bases: Sequence[jax.Array]
    tiles: TileIndex


@takes_variables
def masked_conv_stack(
    x: Float[ArrayLike, "B H W C"],
    kernels: Sequence[Float[ArrayLike, "kh kw C O"]],
    mask: Bool[ArrayLike, "B H W"] | TileIndex,
    bases: Sequence[Float[ArrayLike, "B H W O"]],
    *,
    biases: Sequence[Float[ArrayLike, "O"] | None] | None = None,
    activations: Sequence[Activation | None] | Activation | None = None,
    residuals: Sequence[int | None] | None = None,
    implementation: Implementation = None,
) -> tuple[Float[Array, "B H W O"], ...]:
    """Convolutions one after the other at the active pixels of one index: what has to be computed
    in a stack of residual blocks after an edit of its image.

    Layer l is `masked_conv(input, kernels[l], mask, bias=biases[l], activation=activations[l],
    base=bases[l], residual=...)`, padded "SAME", of stride 1; its input is the result of the layer
    before, x for the first.

    Args:
        x: float32, bfloat16 or float16 [B, H, W, C].
        kernels: of each layer, of x's dtype; O is C but for the last layer, which may have any
            number of outputs.
        mask: bool[B, H, W] or of a batch of 1, or a `TileIndex` of it. One launch needs tiles whose
            sides are multiples of 8.
        bases: what each result starts as, of its shape and of x's dtype; their buffers become the
            results' where they may be donated.
        biases: of each layer, None for none.
        activations: of each layer, or one for all, as in `masked_conv`.
        residuals: for each layer the number of an earlier layer whose result it adds before its
            activation, -1 for x, None for none.
        implementation: as in `masked_conv`.

    Returns:
        The result of every layer, each [B, H, W, O].

    Raises:
        TypeError, ValueError: as `masked_conv`; for sequences of unequal length, and a residual
            that is not computed before its layer.
    """
    check_rank("x", x, 4)
    x = as_array("x", x)
    check_float("x", x)
    count = len(kernels)
    each = _for_all(activations, count)
    given: dict[str, Sequence[Any]] = {
        "bases": bases,
        "biases": [None] * count if biases is None else biases,
        "activations": each,
        "residuals": [None] * count if residuals is None else residuals,
    }
    for name, values in given.items():
        if len(values) != count:
            raise ValueError(f"{name} has {len(values)} entries; kernels has {count}")
    for activation in each:
        check_activation(activation)
    kernels, bases = _arrays(x, kernels, given["bases"])
    added = tuple(_check_residual(at, layer) for layer, at in enumerate(given["residuals"]))
    if count and added[-1] is not None and kernels[-1].shape[3] != x.shape[3]:
        raise ValueError(f"residuals[{count - 1}]={added[-1]}: that layer has other outputs than x")
    spec = _Spec(tuple(each), added, implementation_key(implementation))
    shape = (x.shape[0], x.shape[1], x.shape[2])
    mask = fit_mask("mask", mask, shape, "x's pixels are")
    index = (
        mask
        if isinstance(mask, TileIndex)
        else build_index(mask, BLOCK, implementation=implementation)
    )
    fits = [None if b is None else jnp.asarray(b).astype(jnp.float32) for b in given["biases"]]
    implementations = plan("masked_conv_stack", implementation, NAMES)
    offered = "cuda" in implementations.values()
    problem = _problem(x, kernels, fits, index, offered=offered)
    choice, shapes = choose(OP, problem), f"{x.dtype.name}{list(x.shape)}, {count} layers"

    def told(name: str) -> tuple[Choice, dict[str, str]]:
        here = problem if name == "cuda" else dataclasses.replace(problem, offered=False)
        return choose(OP, here), against(here)

    whole = choice.first == ONE_LAUNCH
    explain_call(OP, shapes, implementations, told, index if whole else None)
    if not whole:
        return _layers(spec, x, kernels, fits, bases, index)
    check_overflow(OP, index)
    return _run(spec, *lift(x, kernels, fits, bases, index))


def _for_all(
    activations: Sequence[Activation | None] | Activation | None, count: int
) -> Sequence[Activation | None]:
    """One activation for every layer, where one was given for all."""
    if activations is None or isinstance(activations, str):
        return (cast(Activation | None, activations),) * count
    return activations


def _problem(
    x: jax.Array,
    kernels: Sequence[jax.Array],
    biases: Sequence[jax.Array | None],
    index: TileIndex,
    *,
    offered: bool,
) -> StackProblem:
    """What the choice depends on; `offered`: the CUDA kernels are built, and may be taken."""
    fit = all(b is None or b.shape == k.shape[3:] for b, k in zip(biases, kernels, strict=True))
    return StackProblem(
        tuple(x.shape),
        x.dtype.name,
        tuple((k.shape[0], k.shape[1]) for k in kernels),
        kernels[-1].shape[3] if kernels else 0,
        fit,
        index.tile,
        index.align,
        index.capacity,
        offered,
        settings().demanded("masked_conv") is not None,
    )


def _arrays(
    x: jax.Array, kernels: Sequence[Any], bases: Sequence[Any]
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The kernels and the bases as arrays, checked."""
    channels = x.shape[3]
    for layer, (kernel, base) in enumerate(zip(kernels, bases, strict=True)):
        for name, value in (("kernels", kernel), ("bases", base)):
            check_rank(f"{name}[{layer}]", value, 4)
            outputs = kernel.shape[3] if layer == len(kernels) - 1 else channels
            wanted = (*kernel.shape[:2], channels) if name == "kernels" else x.shape[:3]
            if value.shape != (*wanted, outputs) or value.dtype != x.dtype:
                raise ValueError(
                    f"{name}[{layer}] is {value.dtype}{list(value.shape)}; "
                    f"x needs {x.dtype}{[*wanted, outputs]}"
                )
    return tuple(map(jnp.asarray, kernels)), tuple(map(jnp.asarray, bases))


def _check_residual(at: int | None, layer: int) -> int | None:
    if at is not None and not -1 <= at < layer:
        raise ValueError(f"residuals[{layer}]={at}; it takes -1 (x) to {layer - 1}, or None")
    return at


@functools.partial(jax.jit, static_argnums=0)
def _run(spec: _Spec, *operands: Any) -> Results:
    return _stack(spec, *operands)


@differentiable()
def _stack(spec: _Spec, *operands: Any) -> Results:
    return _forward(spec)(*operands)


def _stack_fwd(spec: _Spec, *operands: Any) -> tuple[Results, Any]:
    return _stack(spec, *operands), operands


def _stack_bwd(spec: _Spec, operands: Any, cotangents: Results) -> tuple[Any, ...]:
    """Layer by layer, whose results are computed again."""
    *arrays, index = operands
    _, back = jax.vjp(lambda *arrays: _unexplained(spec, *arrays, index), *arrays)
    return *back(cotangents), None


def _stack_tangent(spec: _Spec, operands: Any, tangents: Any) -> Any:
    """Layer by layer, whose results are computed again."""
    *arrays, index = operands
    run = functools.partial(_unexplained, spec)
    return tangent_of(lambda *arrays: run(*arrays, index), arrays, tangents[:-1])


_stack.defrules(_stack_fwd, _stack_tangent, _stack_bwd)


@kept
def _forward(spec: _Spec) -> Callable[..., Results]:
    """`_Operands` -> results, with its vmap rule: layer by layer, each of
    which has one.
    """

    @custom_vmap
    def run(*operands: Any) -> Results:
        alone = dispatch(
            "masked_conv_stack",
            spec.implementation,
            cuda=functools.partial(_one_launch, spec),
            cpu=functools.partial(_unexplained, spec),
            reference=functools.partial(_unexplained, spec),
        )
        return _split(alone, _Operands(*operands))

    @run.def_vmap
    def rule(axis_size: int, in_batched: Sequence[Any], *operands: Any) -> tuple[Results, Any]:
        axes = jax.tree.map(lambda batched: 0 if batched else None, in_batched)
        many = jax.vmap(functools.partial(_unexplained, spec), tuple(axes), axis_size=axis_size)
        out = many(*operands)
        return out, (True,) * len(out)

    return run


def _split(alone: Callable[..., Results], given: _Operands) -> Results:
    """`alone`, split over a mesh by the images: each shard lists the tiles of its own images."""
    x, kernels, biases, bases, index = given
    count, images = len(kernels), "b . . ."
    rule = Rule(
        OP,
        (images, "b . .", *[". . . ."] * count, *["."] * count, *[images] * count, None),
        (images,) * count,
        ("b",),
        ("x", "mask", *["kernels"] * count, *["biases"] * count, *["bases"] * count, "mask"),
        why={".": "a stack is split by the images; js.masked_conv splits outputs, too"},
    )

    def parts(given: Sequence[Any]) -> tuple[Sequence[Any], ...]:
        return given[:count], given[count : 2 * count], given[2 * count :]

    def whole(x: jax.Array, words: jax.Array, *given: Any) -> Results:
        return alone(x, *parts(given[:-1]), given[-1])

    def local(_: Shards, x: jax.Array, words: jax.Array, *given: Any) -> Results:
        here = index_of_words(words, index.shape[2], index.tile, align=index.align)
        return alone(x, *parts(given[:-1]), here)

    split = partitioned(rule, whole, local)
    found = split(x, cover_words(index), *kernels, *biases, *bases, index)
    return found if count > 1 else (found,)


def _layers(spec: _Spec, *operands: Any) -> Results:
    """The stack through `masked_conv`."""
    x, kernels, biases, bases, index = _Operands(*operands)
    outs: list[jax.Array] = []
    for layer, (kernel, bias, base) in enumerate(zip(kernels, biases, bases, strict=True)):
        at = spec.residuals[layer]
        added = None if at is None else x if at < 0 else outs[at]
        out = masked_conv(
            outs[-1] if outs else x,
            kernel,
            index,
            bias=bias,
            activation=spec.activations[layer],
            base=base,
            residual=added,
            implementation=spec.implementation,
        )
        outs.append(out)
    return tuple(outs)


def _unexplained(spec: _Spec, *operands: Any) -> Results:
    """`_layers` behind a call that was checked, and that `js.explain` has noted."""
    with override(explain=None, checked=False):
        return _layers(spec, *operands)


def _one_launch(spec: _Spec, *operands: Any) -> Results:
    x, kernels, biases, bases, index = _Operands(*operands)
    count = len(kernels)
    back = [0 if at is None else layer - at for layer, at in enumerate(spec.residuals)]
    found = ffi_call(
        "jaxsparse_masked_conv_stack",
        [((MAX_LAYERS,), np.uint32), *((base.shape, base.dtype) for base in bases)],
        x,
        index.ids,
        slots_of(index, "cuda"),
        index.words,
        *kernels,
        *(absent(bias, np.float32) for bias in biases),
        *bases,
        input_output_aliases={4 + 2 * count + layer: 1 + layer for layer in range(count)},
        tile_h=index.tile[0],
        tile_w=index.tile[1],
        activations=_pack([CODES[name] for name in spec.activations]),
        residuals=_pack(back),
    )
    return tuple(found[1:])


def _pack(values: list[int]) -> int:
    """Value i in bits 5*i and up."""
    return sum(value << (_BITS * i) for i, value in enumerate(values))
