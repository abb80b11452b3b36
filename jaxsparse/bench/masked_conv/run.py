"""`masked_conv` side by side with dense convolutions, on cases and masks by name."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsparse.bench.masked_conv.torch_side import TorchConv
from jaxsparse.bench.measure.chain import ChainSide, Pool, compile_all, tolerance
from jaxsparse.bench.measure.dtypes import check_dtype
from jaxsparse.bench.measure.timing import Samples, Side, columns, interleave
from jaxsparse.bench.report.rows import DENSE, Row
from jaxsparse.index import tile_index
from jaxsparse.ops import masked_conv
from jaxsparse.reference import masked_conv as reference
from jaxsparse.select import config, default_tile
from jaxsparse.select.config import SELECTIONS
from jaxsparse.select.sites import watch
from jaxsparse.testing import ConvCase, make_masks, masks_of_tile_density, tile_density

OP = "masked_conv"
MASK_SIDE = "ours, mask"
MEGABYTE = 1e6


@dataclasses.dataclass(frozen=True)
class Plan:
    """How to measure.

    `selections` are ways of choosing to time, on an index of tiles; "ours, mask" stands beside
    them: the op as it is, given the mask; `as_called` times it where no selection is, too.
    `variants` names single variants, None all that take the problem. `densities` are of pixels, or
    of tiles with `by="tile"`. `index_every`: build an index for so many calls, inside the timing; 0
    builds them before. `rotate_mb` of distinct inputs at least pass before one comes again, within
    `max_sets` chains; a chain does its calls `repeats` times. `device` times the device too.
    `threads`: sides that compile at once.
    """

    densities: tuple[float, ...] = (0.1, 0.3, 0.5, 0.75, 1.0)
    by: str = "pixel"
    selections: tuple[str, ...] = SELECTIONS
    as_called: bool = False
    variants: tuple[str, ...] | None = None
    tile: tuple[int, int] | None = None
    index_every: int = 2
    calls: int = 10
    repeats: int = 1
    samples: int = 15
    rotate_mb: float = 64.0
    max_sets: int = 8
    device: bool = False
    torch: bool = True
    threads: int = 1


def measure(
    case: ConvCase, mask: str, dtype: str, plan: Plan, on_step: Callable[[str], None] = print
) -> Iterator[list[Row]]:
    """The rows of one case, density by density.

    Args:
        case: the convolution.
        mask: a name in `jaxsparse.testing.MASKS`.
        dtype: "float32" (TF32 on a GPU), "highest" (float32 multiplied in float32), "bfloat16" or
            "float16".
        plan: how.
        on_step: called with a side's name after each of its turns.

    Raises:
        ValueError: for a dtype or mask that does not exist, and for a variant that does not take
            the problem.
    """
    check_dtype(dtype)
    tile = plan.tile or default_tile()
    pool: Pool | None = None
    sides: list[Side] = []
    failures: dict[str, str] = {}
    for density in plan.densities:
        masks = _masks(case, mask, density, tile, plan)
        operands, per_call = make_operands(case, dtype, masks, tile, plan)
        if pool is None:
            pool = make_pool(case, dtype, operands, per_call, plan)
            sides, failures = make_sides(case, dtype, pool, tile, plan)
        else:
            pool.load(operands, per_call)
        samples = interleave(sides, samples=plan.samples, device=plan.device, on_step=on_step)
        samples |= {name: Samples(failure=why) for name, why in failures.items()}
        pixels = float(np.mean([m.mean() if m.size else 0.0 for m in masks]))
        tiles = float(np.mean([tile_density(m, tile) for m in masks]))
        yield [
            _row(case, mask, dtype, name, s, (pixels, tiles), tile, samples, pool, plan)
            for name, s in samples.items()
        ]


def _masks(
    case: ConvCase, name: str, density: float, tile: tuple[int, int], plan: Plan
) -> list[np.ndarray]:
    """One mask for each index of a chain: distinct, or equal indices would be built once."""
    count = math.ceil(plan.calls / max(plan.index_every, 1))
    if plan.by == "tile":
        return masks_of_tile_density(name, case.mask_shape, density, tile, count=count)
    return make_masks(name, case.mask_shape, density, count=count)


def make_operands(
    case: ConvCase, dtype: str, masks: Sequence[np.ndarray], tile: tuple[int, int], plan: Plan
) -> tuple[dict[str, Any], list[jax.Array]]:
    """What the calls of a chain share, and the mask of each call."""
    on_device = [jnp.asarray(m) for m in masks]
    index = jax.jit(functools.partial(tile_index, tile=tile))
    operands = {
        "kernel": jnp.asarray(case.array("kernel")).astype(_kind(dtype)),
        "masks": tuple(on_device),
        "indices": tuple(index(m) for m in on_device),
    }
    return operands, [on_device[i // max(plan.index_every, 1)] for i in range(plan.calls)]


def _kind(dtype: str) -> np.dtype:
    return jnp.dtype("float32" if dtype == "highest" else dtype)


def make_pool(
    case: ConvCase, dtype: str, operands: Any, per_call: Sequence[jax.Array], plan: Plan
) -> Pool:
    """Inputs, and what each call must give: the reference, multiplied in float32."""
    kind = _kind(dtype)

    @jax.jit
    def draw(seed: int | jax.Array) -> jax.Array:
        return jax.random.normal(jax.random.key(seed), case.x_shape, jnp.float32).astype(kind)

    def want(x: jax.Array, mask: jax.Array, operands: Any) -> jax.Array:
        return reference.masked_conv(
            x.astype(jnp.float32),
            operands["kernel"].astype(jnp.float32),
            mask,
            geometry=case.geometry,
            precision=jax.lax.Precision.HIGHEST,
            out_dtype=jnp.dtype(jnp.float32),
        )

    chain_bytes = plan.calls * math.prod(case.x_shape) * kind.itemsize
    least = 3 if plan.device else 1
    sets = min(max(math.ceil(plan.rotate_mb * MEGABYTE / chain_bytes), least), plan.max_sets)
    return Pool(draw, want, operands, per_call, sets=sets, repeats=plan.repeats)


def make_sides(
    case: ConvCase, dtype: str, pool: Pool, tile: tuple[int, int], plan: Plan
) -> tuple[list[Side], dict[str, str]]:
    """The sides that compile, and name -> why for those that do not."""
    precision = jax.lax.Precision.HIGHEST if dtype == "highest" else None
    every = max(plan.index_every, 1)

    def dense(i: int, x: jax.Array, operands: Any) -> jax.Array:
        return _dense(case, x, operands["kernel"], precision)

    def ours(i: int, x: jax.Array, operands: Any) -> jax.Array:
        index = operands["indices"][i // every]
        return masked_conv(x, operands["kernel"], index, precision=precision, **case.options)

    def from_mask(i: int, x: jax.Array, operands: Any) -> jax.Array:
        mask = operands["masks"][i // every]
        return masked_conv(x, operands["kernel"], mask, precision=precision, **case.options)

    def build(operands: Any) -> Any:
        if not plan.index_every:
            return operands
        return operands | {"indices": [tile_index(m, tile) for m in operands["masks"]]}

    makers: dict[str, Callable[[], Side]] = {
        DENSE: lambda: ChainSide(DENSE, pool, dense, everywhere=False, late=True)
    }
    if plan.torch and TorchConv.installed():
        makers["torch"] = lambda: TorchConv("torch", pool, case, dtype)
    if plan.index_every and (plan.selections or plan.as_called):
        makers[MASK_SIDE] = lambda: ChainSide(MASK_SIDE, pool, from_mask, late=True)
    named = {f"ours, {s}": {"selection": s} for s in plan.selections}
    takes = variants_for(case, dtype, pool)
    wanted = takes if plan.variants is None else plan.variants
    if not set(wanted) <= set(takes):
        raise ValueError(
            f"variants {', '.join(wanted)}: {case.name} in {dtype} is taken by {', '.join(takes)}"
        )
    named |= {f"variant {v}": {"variant": v} for v in wanted}
    for name, settings in named.items():
        context = functools.partial(config, **settings)
        makers[name] = functools.partial(
            ChainSide, name, pool, ours, prepare=build, settings=context, late=True
        )
    sides: list[Side] = []
    failures: dict[str, str] = {}
    for name, make in makers.items():
        try:
            sides.append(make())
        except Exception as error:  # one side's failure is a result; the others still run
            failures[name] = f"{type(error).__name__}: {error}"
    failures |= compile_all(sides, plan.threads)
    return [side for side in sides if side.name not in failures], failures


def variants_for(case: ConvCase, dtype: str, pool: Pool) -> list[str]:
    """The variants that take the problem on this machine's platform; none where only the reference
    runs.
    """
    precision = jax.lax.Precision.HIGHEST if dtype == "highest" else None
    platform = platform_name()
    call = functools.partial(masked_conv, precision=precision, **case.options)
    sites = watch(call, pool.xs[0][0], pool.operands["kernel"], pool.operands["indices"][0])
    return next((list(s.branches) for s in sites if s.problem.platform == platform), [])


def platform_name() -> str:
    """ "cpu" or "cuda", as the variant tables call it."""
    return {"gpu": "cuda"}.get(jax.default_backend(), jax.default_backend())


def _dense(case: ConvCase, x: jax.Array, kernel: jax.Array, precision: Any) -> jax.Array:
    return jax.lax.conv_general_dilated(
        x,
        kernel,
        case.strides,
        case.geometry.padding,
        rhs_dilation=case.dilation,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=case.groups,
        precision=precision,
    )


def _row(
    case: ConvCase,
    mask: str,
    dtype: str,
    name: str,
    took: Samples,
    densities: tuple[float, float],
    tile: tuple[int, int],
    samples: dict[str, Samples],
    pool: Pool,
    plan: Plan,
) -> Row:
    return Row(
        op=OP,
        case=case.name,
        mask=mask,
        dtype=dtype,
        side=name,
        pixel_density=densities[0],
        tile_density=densities[1],
        tile=f"{tile[0]}x{tile[1]}",
        index_every=plan.index_every,
        calls=plan.calls * plan.repeats,
        rotated_mb=pool.rotated_bytes / MEGABYTE,
        **columns(took, samples[DENSE], tolerance(dtype, platform_name())),
    )
