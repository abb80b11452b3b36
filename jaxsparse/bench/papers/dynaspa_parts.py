"""Parts of DynaSpa's evaluation beside its convolutions: gathers and scatters around a dense
product, attention over kept tokens, and the costs of reading the mask.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsparse.bench.measure.chain import Call
from jaxsparse.bench.papers.exhibit import Figure, Setting, speedups, time_of
from jaxsparse.bench.products.run import Comparison, element_type, measure, normal, precision
from jaxsparse.bits import pack_mask
from jaxsparse.ffi import Implementation
from jaxsparse.index import tile_index
from jaxsparse.ops import masked_conv, masked_matmul
from jaxsparse.testing import ConvCase, make_masks

DENSE, OURS = "XLA dense", "jaxsparse"
AXES = ("NHWC", "HWIO", "NHWC")
HEADS, TOKENS, WIDTH = 6, 197, 64
#: The convolution of Section 5.3.
FREQUENT = ConvCase("40x40x256->256", 1, 40, 40, 256, 256, (3, 3))


def figure_3(setting: Setting) -> Iterator[Figure]:
    """3x3 convolutions by gathering the pixels of a mask, at 50 to 99 % of them left out."""
    shapes = ((56, 64), (28, 128), (14, 256)) if setting.full else ((14, 256),)
    for side, channels in shapes:
        name = f"{side}x{side}x{channels}->{channels}"
        case = ConvCase(name, 1, side, side, channels, channels, (3, 3))
        for density in (0.5, 0.3, 0.1, 0.05, 0.01):
            yield from speedups([_gathered(case, density, setting)], setting)


def _gathered(case: ConvCase, density: float, setting: Setting) -> Comparison:
    masks = make_masks("blobs", case.mask_shape, density, count=setting.plan.calls)
    room = max(int(mask.sum()) for mask in masks)
    exactness = precision(setting.dtype)

    def gathered(i: int, x: jax.Array, operands: Any) -> jax.Array:
        kernel, mask = operands["kernel"], operands["masks"][i]
        b, y, z = jnp.nonzero(mask, size=room, fill_value=mask.shape)
        padded = jnp.pad(x, ((0, 0), *case.geometry.padding, (0, 0)))
        taps = [padded[b, y + up, z + left] for up in range(3) for left in range(3)]
        rows = jnp.concatenate(taps, -1)
        made = jnp.matmul(rows, kernel.reshape(-1, case.outputs), precision=exactness)
        return jnp.zeros((*mask.shape, case.outputs), x.dtype).at[b, y, z].set(made, mode="drop")

    return _conv(case, f"{density:g} of the pixels", masks, {"gathers": gathered}, setting)


def _conv(
    case: ConvCase,
    what: str,
    masks: list[np.ndarray],
    ways: Mapping[str, Call],
    setting: Setting,
) -> Comparison:
    """A convolution given its mask, beside the dense one whose result is masked and other ways."""
    kind, exactness = element_type(setting.dtype), precision(setting.dtype)
    given = tuple(jnp.asarray(mask) for mask in masks)
    operands = {
        "kernel": normal(case.kernel_shape, kind, 1, (9 * case.channels) ** -0.5),
        "masks": given,
    }

    def convolved(x: jax.Array, mask: jax.Array, kernel: jax.Array, exactness: Any) -> jax.Array:
        y = jax.lax.conv_general_dilated(
            x, kernel, case.strides, "SAME", dimension_numbers=AXES, precision=exactness
        )
        return jnp.where(mask[..., None], y, jnp.zeros_like(y))

    def dense(i: int, x: jax.Array, operands: Any) -> jax.Array:
        return convolved(x, operands["masks"][i], operands["kernel"], exactness)

    def ours(i: int, x: jax.Array, operands: Any) -> jax.Array:
        return masked_conv(x, operands["kernel"], operands["masks"][i], precision=exactness)

    def want(x: jax.Array, mask: jax.Array, operands: Any) -> jax.Array:
        kernel = operands["kernel"].astype(jnp.float32)
        return convolved(x.astype(jnp.float32), mask, kernel, jax.lax.Precision.HIGHEST)

    return Comparison(
        "masked_conv",
        case.name,
        what,
        setting.dtype,
        lambda seed: normal(case.x_shape, kind, 10 + seed),
        want,
        operands,
        given,
        {DENSE: dense, **ways, OURS: ours},
    )


def attention(setting: Setting) -> Iterator[Figure]:
    """Both products of an attention of A-ViT's size, of the tokens that are kept."""
    for density in (0.1, 0.3, 0.5):
        for name in ("scores", "values"):
            yield from speedups([_product(name, density, setting)], setting)


def _product(name: str, density: float, setting: Setting) -> Comparison:
    """Rows of the result, and its columns or the terms of its sums, belong to tokens."""
    kind, exactness = element_type(setting.dtype), precision(setting.dtype)
    scores = name == "scores"
    inner, outer = (WIDTH, TOKENS) if scores else (TOKENS, WIDTH)
    rng = np.random.default_rng(0)
    kept = [jnp.asarray(rng.random(TOKENS) < density) for _ in range(setting.plan.calls)]
    operands = {"b": normal((HEADS, inner, outer), kind, 1, inner**-0.5), "kept": tuple(kept)}

    def multiplied(a: jax.Array, b: jax.Array, kept: jax.Array, exactness: Any) -> jax.Array:
        b = jnp.where(kept if scores else kept[:, None], b, jnp.zeros_like(b))
        return jnp.matmul(jnp.where(kept[:, None], a, jnp.zeros_like(a)), b, precision=exactness)

    def dense(i: int, x: jax.Array, operands: Any) -> jax.Array:
        return multiplied(x, operands["b"], operands["kept"][i], exactness)

    def ours(i: int, x: jax.Array, operands: Any) -> jax.Array:
        kept = operands["kept"][i]
        return masked_matmul(
            x,
            operands["b"],
            a_mask=kept[:, None],
            b_mask=kept[None] if scores else kept[:, None],
            granularity={"a": (1, inner), "b": (inner, 1) if scores else (1, outer)},
            precision=exactness,
        )

    def want(x: jax.Array, kept: jax.Array, operands: Any) -> jax.Array:
        a, b = x.astype(jnp.float32), operands["b"].astype(jnp.float32)
        return multiplied(a, b, kept, jax.lax.Precision.HIGHEST)

    return Comparison(
        "masked_matmul",
        f"Attention, {HEADS} heads, {TOKENS} tokens, {name}",
        f"{density:g} of the tokens",
        setting.dtype,
        lambda seed: normal((HEADS, TOKENS, inner), kind, 10 + seed),
        want,
        operands,
        kept,
        {DENSE: dense, OURS: ours},
    )


def table_4(setting: Setting) -> Iterator[Figure]:
    """The times of a mask's bits, and of its list of tiles with the choice of the kernel, as shares
    of the time of a call that is given the mask.
    """
    for density in (0.1, 0.3, 0.5):
        case = f"{FREQUENT.name}, {density:g} of the pixels"
        setting.on_step(case)
        masks = make_masks("blobs", FREQUENT.mask_shape, density, count=setting.plan.calls)
        whole = _time(_conv(FREQUENT, "", masks, {}, setting), setting)
        bits = _time(_looking(density, setting, _bits), setting)
        index = _time(_looking(density, setting, _tiles), setting)
        if whole is None or bits is None or index is None:
            yield Figure(case, "", "a wrong result", correct=False)
            continue
        paper = "bits 4 %, list < 1 %, choice < 1 %; all < 6 %" if density == 0.1 else ""
        shares = f"bits {100 * bits / whole:.1f} %; all {100 * index / whole:.1f} %"
        yield Figure(case, paper, f"{whole:,.1f} us: {shares}")


def _bits(mask: jax.Array, implementation: Implementation) -> jax.Array:
    return pack_mask(mask, implementation=implementation).astype(jnp.float32)


def _tiles(mask: jax.Array, implementation: Implementation) -> jax.Array:
    index = tile_index(mask, implementation=implementation)
    listed = jnp.where(jnp.arange(index.capacity) < index.count, index.ids, 0)
    return jnp.stack([index.count, listed.sum()]).astype(jnp.float32)


def _looking(
    density: float, setting: Setting, look: Callable[[jax.Array, Implementation], jax.Array]
) -> Comparison:
    """A function that reads a mask, beside its reference."""

    def draw(seed: int) -> jax.Array:
        (mask,) = make_masks("blobs", FREQUENT.mask_shape, density, seed=seed)
        return jnp.asarray(mask, jnp.float32)

    return Comparison(
        "tile_index",
        FREQUENT.name,
        "",
        "float32",
        draw,
        lambda x, own, operands: look(x > 0, "reference"),
        None,
        [None] * setting.plan.calls,
        {OURS: lambda i, x, operands: look(x > 0, None)},
    )


def _time(one: Comparison, setting: Setting) -> float | None:
    """Microseconds of our side; None for a wrong result."""
    rows = {row.side: row for row in measure(one, setting.plan, lambda side: None)}
    return time_of(rows[OURS]) if rows[OURS].correct else None
