"""Parts of DynaSpa's evaluation beside its convolutions: gathers and scatters around a dense
product, attention over kept tokens, and what looking at the mask costs.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsparse.bench.measure.chain import Call
from jaxsparse.bench.papers.exhibit import Figure, Setting, speedups, time_of
from jaxsparse.bench.products.run import Comparison, element_type, measure, normal, precision
from jaxsparse.bits import pack_mask
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
        "indices": tuple(tile_index(mask) for mask in given),
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
    """Shares of the time of a call that go into the mask's bits, and into the list of tiles with
    the choice of the kernel.
    """
    for density in (0.1, 0.3, 0.5):
        case = f"{FREQUENT.name}, {density:g} of the pixels"
        setting.on_step(case)
        masks = make_masks("blobs", FREQUENT.mask_shape, density, count=setting.plan.calls)
        whole, without = _times(_indexed(masks, setting), setting, (OURS, "given an index"))
        (bits,) = _times(_packing(setting), setting, ("pack_mask",))
        if whole is None or without is None or bits is None:
            yield Figure(case, "", "a wrong result", correct=False)
            continue
        paper = "bits 4 %, list < 1 %, choice < 1 %; all < 6 %"
        saved = 100 * (1 - without / whole)
        text = f"{whole:,.1f} us: bits {100 * bits / whole:.1f} %; all {saved:.1f} %"
        yield Figure(case, paper, text)


def _indexed(masks: list[np.ndarray], setting: Setting) -> Comparison:
    def given(i: int, x: jax.Array, operands: Any) -> jax.Array:
        return masked_conv(
            x, operands["kernel"], operands["indices"][i], precision=precision(setting.dtype)
        )

    return _conv(FREQUENT, "", masks, {"given an index": given}, setting)


def _packing(setting: Setting) -> Comparison:
    """The bits of masks of the size of `FREQUENT`, whose entries are computed in the call."""

    def ours(i: int, x: jax.Array, operands: Any) -> jax.Array:
        return pack_mask(x > 0).astype(jnp.float32)

    def want(x: jax.Array, own: None, operands: Any) -> jax.Array:
        return pack_mask(x > 0, implementation="reference").astype(jnp.float32)

    return Comparison(
        "pack_mask",
        "pack_mask",
        "",
        "float32",
        lambda seed: normal(FREQUENT.mask_shape, jnp.dtype("float32"), seed),
        want,
        None,
        [None] * setting.plan.calls,
        {"pack_mask": ours},
    )


def _times(one: Comparison, setting: Setting, sides: tuple[str, ...]) -> list[float | None]:
    """Microseconds of these sides; None for a wrong result."""
    rows = {row.side: row for row in measure(one, setting.plan, lambda side: None)}
    return [time_of(rows[side]) if rows[side].correct else None for side in sides]
