"""A block-sparse product in Triton, as a rival of `masked_matmul`: for every row of blocks the list
of those that are kept, and a tile of one row of blocks by 256 columns that walks it.
"""

import torch
import triton
import triton.language as tl


def plan(mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(int32[rows] kept blocks of each row of blocks, int32[rows, columns] which ones)."""
    order = torch.argsort(mask.to(torch.int8), dim=1, descending=True, stable=True)
    return mask.sum(1, dtype=torch.int32), order.to(torch.int32).contiguous()


@triton.autotune(
    configs=[
        triton.Config({"tile": tile}, num_warps=warps, num_stages=stages)
        for tile in (128, 256)
        for warps in (4, 8)
        for stages in (3, 5)
    ],
    key=["n", "k"],
)
@triton.jit
def _kernel(
    a,
    b,
    out,
    counts,
    blocks,
    n,
    k,
    columns,
    rows: tl.constexpr,
    depth: tl.constexpr,
    tile: tl.constexpr,
):
    line = tl.program_id(1)
    m = line * rows + tl.arange(0, rows)
    at = tl.program_id(0) * tile + tl.arange(0, tile)
    inner = tl.arange(0, depth)
    sums = tl.zeros((rows, tile), tl.float32)
    for i in range(tl.load(counts + line)):
        first = tl.load(blocks + line * columns + i) * depth
        x = tl.load(a + m[:, None] * k + first + inner[None, :])
        y = tl.load(b + (first + inner[:, None]) * n + at[None, :])
        sums += tl.dot(x, y)
    tl.store(out + m[:, None] * n + at[None, :], sums.to(out.dtype.element_ty))


def product(
    a: torch.Tensor,
    b: torch.Tensor,
    kept: tuple[torch.Tensor, torch.Tensor],
    block: tuple[int, int],
) -> torch.Tensor:
    """a[m, k], of whose blocks `plan` listed the kept ones, times b[k, n]; sizes are multiples of
    the blocks and of 256.
    """
    counts, blocks = kept
    (m, k), n = a.shape, b.shape[1]
    out = torch.empty((m, n), dtype=a.dtype, device=a.device)
    _kernel[lambda meta: (n // meta["tile"], m // block[0])](
        a, b, out, counts, blocks, n, k, blocks.shape[1], rows=block[0], depth=block[1]
    )
    return out
