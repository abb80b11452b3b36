"""The grouped products on their native handlers: operands, attributes, workspaces, and which
variant takes which problem.
"""

import os
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxsparse.ffi import ffi_call
from jaxsparse.ffi.platform import is_hopper
from jaxsparse.ffi.register import native
from jaxsparse.select.variants import table

DTYPES = {"float32": 0, "bfloat16": 1, "float16": 2}
_ALIGN = 64
_MAX_WORKERS = 64
_TILE_ROWS = 128
_TENSOR_CORES = 1
_MULTIPROCESSORS = 132


class Call(NamedTuple):
    """What is static about one native call: sorted rows, columns and rows of the other matrix
    (the result, or the cotangent of drhs), and the attributes.
    """

    sorted_rows: int
    outputs: int
    out_rows: int
    scatters: bool
    transpose_rhs: bool
    precision: str
    out_dtype: str


def forward(
    call: Call, platform: str, variant: str, lhs, rhs, group_sizes, gather, scatter, row_weights
) -> jax.Array:
    """One product by `variant`: call.out_dtype[out_rows, outputs]."""
    number = table("grouped_matmul", platform)[variant].number
    size = workspace(call, platform, number, lhs, group_sizes)
    return ffi_call(
        "jaxsparse_grouped_matmul",
        [((call.out_rows, call.outputs), call.out_dtype), ((size,), np.uint8)],
        lhs,
        rhs,
        group_sizes,
        *_present(gather, scatter, row_weights),
        sorted_rows=call.sorted_rows,
        scatters=call.scatters,
        transpose_rhs=call.transpose_rhs,
        precision=int(call.precision == "highest"),
        variant=number,
    )[0]


def drhs(call: Call, platform: str, lhs, gy, group_sizes, gather, scatter, row_weights):
    """The gradient of the weights: call.out_dtype[g, depth, outputs]."""
    groups = group_sizes.shape[0]
    shape = (groups, lhs.shape[1], call.outputs)
    if platform == "cpu":
        variant, dtype, size = 0, "float32", cpu_drhs_scratch(groups)
    else:
        tensor_cores = lhs.dtype != np.float32 and tile_reason(call, lhs, group_sizes) is None
        variant, dtype = _TENSOR_CORES if tensor_cores else 0, call.out_dtype
        size = native(platform).grouped_matmul_drhs_workspace(
            shape_of(call, lhs, group_sizes), DTYPES[lhs.dtype.name], DTYPES[dtype]
        )
    return ffi_call(
        "jaxsparse_grouped_matmul_drhs",
        [(shape, dtype), ((size,), np.uint8)],
        lhs,
        gy,
        group_sizes,
        *_present(gather, scatter, row_weights),
        sorted_rows=call.sorted_rows,
        precision=int(call.precision == "highest"),
        variant=variant,
    )[0].astype(call.out_dtype)


def variants(call: Call, platform: str, lhs: Any, group_sizes: Any) -> list[str]:
    """The variants whose handler takes this problem, in order of preference."""
    names = [
        name
        for name in table("grouped_matmul", platform)
        if reason_against(call, platform, name, lhs, group_sizes) is None
    ]
    if platform == "cpu":
        return names
    row_tiles = call.sorted_rows / _TILE_ROWS + min(group_sizes.shape[0], call.sorted_rows) / 2
    few = row_tiles * -(-call.outputs // 256) < _MULTIPROCESSORS
    best = "n128" if few or call.outputs <= 128 else "n256"
    return sorted(names, key=lambda name: (name == "direct", name != best))


def reason_against(
    call: Call, platform: str, variant: str, lhs: Any, group_sizes: Any
) -> str | None:
    """Why `variant` does not take this problem, or None. The handlers refuse by the same rules."""
    if platform == "cpu" or variant == "direct":
        return None
    if lhs.dtype == np.float32 and call.precision == "highest":
        return "float32 products are asked for, not TF32"
    return tile_reason(call, lhs, group_sizes)


def tile_reason(call: Call, lhs: Any, group_sizes: Any) -> str | None:
    """Why the tensor-core kernels do not take these shapes."""
    vector = 16 // lhs.dtype.itemsize
    counts = (call.sorted_rows, group_sizes.shape[0], *lhs.shape, call.outputs, call.out_rows)
    if 0 in counts:
        return "nothing to sum"
    if lhs.shape[1] % vector or call.outputs % vector:
        return f"{lhs.shape[1]} and {call.outputs} columns: both must be multiples of {vector}"
    widest = max(lhs.shape[1], call.outputs)
    if group_sizes.shape[0] * widest >= 2**31:
        return "groups times columns pass 2^31"
    if max(lhs.shape[0], call.out_rows) * (widest // vector) >= 2**31:
        return "an operand passes 32 GiB"
    if not is_hopper():
        return "the device is not of compute capability 9.0"
    return None


def shape_of(call: Call, lhs: Any, group_sizes: Any) -> tuple[int, ...]:
    """The shape as the native module takes it, in the order of its GroupedShape."""
    groups = group_sizes.shape[0]
    return (*lhs.shape, call.outputs, groups, call.sorted_rows, call.out_rows)


def workspace(call: Call, platform: str, number: int, lhs: Any, group_sizes: Any) -> int:
    """Bytes of workspace of one product."""
    if platform == "cuda":
        return native(platform).grouped_matmul_workspace(
            shape_of(call, lhs, group_sizes),
            DTYPES[lhs.dtype.name],
            DTYPES[call.out_dtype],
            call.scatters,
            call.transpose_rhs,
            number,
        )
    wide_sums = call.scatters and call.out_dtype != "float32"
    sums = 4 * (call.out_rows * call.outputs + 16) if wide_sums else 0
    return cpu_scratch(lhs.shape[1], group_sizes.shape[0], sums)


def cpu_scratch(depth: int, groups: int, sums: int = 0) -> int:
    """Workspace of the CPU handler: spans, sums, and per worker the strips of a chunk and a group
    of panels.
    """
    strips = 4 * (min(max((128 << 10) // max(depth, 1), 24), 192) + 12) * (-(-depth // 64) * 64)
    panels = 4 * depth * min(max((256 << 10) // max(depth, 1), 64), 512)
    return 16 * (groups + 1) + sums + _workers() * (strips + panels + 4 * _ALIGN) + 8 * _ALIGN


def cpu_drhs_scratch(groups: int) -> int:
    """Workspace of the CPU's drhs handler: spans, per worker a block of rows of both operands."""
    return (
        16 * (groups + 1) + _workers() * (4 * 256 * (96 + 256) + 16 * 256 + 4 * _ALIGN) + 8 * _ALIGN
    )


def _workers() -> int:
    """Workers that the scratch has room for; the handler takes as many as its pool has."""
    return min(os.cpu_count() or 1, _MAX_WORKERS)


def _present(gather: Any, scatter: Any, row_weights: Any) -> tuple[jax.Array, ...]:
    none = jnp.zeros(0, jnp.int32)
    return (
        none if gather is None else gather,
        none if scatter is None else scatter,
        jnp.zeros(0, jnp.float32) if row_weights is None else row_weights,
    )
