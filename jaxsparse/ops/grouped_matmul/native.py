"""The grouped products on their native handlers: operands, attributes and workspaces."""

from typing import NamedTuple

import jax
import numpy as np

from jaxsparse.core.dtypes import DTYPES
from jaxsparse.core.types import Shaped
from jaxsparse.ffi import absent, ffi_call
from jaxsparse.ffi.register import native
from jaxsparse.select.grouped_matmul import GroupedProblem, tile_reason
from jaxsparse.select.variants import table

_TENSOR_CORES = 1


class Rows(NamedTuple):
    """Which rows a product takes: what stands behind lhs and rhs among its operands."""

    group_sizes: jax.Array
    gather: jax.Array | None
    scatter: jax.Array | None
    row_weights: jax.Array | None

    @classmethod
    def of(cls, group_sizes: jax.Array | None, *picks: jax.Array | None) -> "Rows":
        """The last of the operands of an op, whose type says that any may be absent."""
        assert group_sizes is not None
        return cls(group_sizes, *picks)

    def given(self) -> tuple[jax.Array, ...]:
        """As the handlers take them."""
        gather, scatter = absent(self.gather, np.int32), absent(self.scatter, np.int32)
        return self.group_sizes, gather, scatter, absent(self.row_weights, np.float32)


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
    call: Call,
    platform: str,
    variant: str,
    lhs: jax.Array,
    rhs: jax.Array,
    *rows: jax.Array | None,
) -> jax.Array:
    """One product by `variant` of these `Rows`: call.out_dtype[out_rows, outputs]."""
    taken = Rows.of(*rows)
    number = table("grouped_matmul", platform)[variant].number
    size = workspace(call, platform, number, lhs, taken.group_sizes)
    return ffi_call(
        "jaxsparse_grouped_matmul",
        [((call.out_rows, call.outputs), call.out_dtype), ((size,), np.uint8)],
        lhs,
        rhs,
        *taken.given(),
        sorted_rows=call.sorted_rows,
        scatters=call.scatters,
        transpose_rhs=call.transpose_rhs,
        precision=int(call.precision == "highest"),
        variant=number,
    )[0]


def drhs(call: Call, platform: str, lhs: jax.Array, gy: jax.Array, taken: Rows) -> jax.Array:
    """The gradient of the weights: call.out_dtype[g, depth, outputs]."""
    group_sizes = taken.group_sizes
    groups = group_sizes.shape[0]
    shape = (groups, lhs.shape[1], call.outputs)
    if platform == "cpu":
        variant, size = 0, native(platform).grouped_matmul_drhs_workspace(groups)
    else:
        problem = problem_of(platform, call, lhs, group_sizes)
        tensor_cores = lhs.dtype != np.float32 and tile_reason(problem) is None
        variant = _TENSOR_CORES if tensor_cores else 0
        size = native(platform).grouped_matmul_drhs_workspace(
            shape_of(call, lhs, group_sizes), DTYPES[lhs.dtype.name], DTYPES[call.out_dtype]
        )
    return ffi_call(
        "jaxsparse_grouped_matmul_drhs",
        [(shape, call.out_dtype), ((size,), np.uint8)],
        lhs,
        gy,
        *taken.given(),
        sorted_rows=call.sorted_rows,
        precision=int(call.precision == "highest"),
        variant=variant,
    )[0]


def problem_of(platform: str, call: Call, lhs: Shaped, group_sizes: Shaped) -> GroupedProblem:
    """What the choice for one product depends on."""
    return GroupedProblem(
        platform,
        tuple(lhs.shape),
        lhs.dtype.name,
        lhs.dtype.itemsize,
        group_sizes.shape[0],
        call.sorted_rows,
        call.outputs,
        call.out_rows,
        call.precision,
    )


def shape_of(call: Call, lhs: Shaped, group_sizes: Shaped) -> tuple[int, ...]:
    """The shape as the native module takes it, in the order of its GroupedShape."""
    groups = group_sizes.shape[0]
    return (*lhs.shape, call.outputs, groups, call.sorted_rows, call.out_rows)


def workspace(call: Call, platform: str, number: int, lhs: Shaped, group_sizes: Shaped) -> int:
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
    shape = shape_of(call, lhs, group_sizes)
    return native(platform).grouped_matmul_workspace(shape, DTYPES[call.out_dtype], call.scatters)
