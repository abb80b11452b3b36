"""Which variant of `masked_matmul` comes first, from what is known while tracing.

The tiles' own cost is theirs to compare, on the device. Here it is tiles against XLA's dense
product, which nobody on the device can choose: by the size of the blocks, by the share of them that
the caller says is kept, and by where the operands lie.
"""

from typing import Any

from jaxsparse.ops.masked_matmul_native import SAMPLED, TURNED, transposes, variants

#: Blocks of fewer rows than this lost to the dense product at every density that was measured.
_FEW_ROWS = 8
#: Panels, 128 rows by 256 columns, that an H200 needs to be half full.
_FILLING_TILES = 66
#: Share of kept blocks, in twentieths, from which the dense product was the faster one (H200,
#: 4096 x 4096 by 4096 x 2048, float32): where TMA loads whole blocks; where columns are picked, of
#: an operand or of the result.
_DENSE_FROM = {"boxes": 0.6, "picked": 0.2, "sampled": 0.15}


def portfolio(p: Any, platform: str, a: Any, b: Any, masks: Any) -> list[str]:
    """What to choose among, in order of preference where no table says more. XLA's dense product
    comes before the kernel on CUDA cores, which it beats on all but nearly empty masks; and before
    the tiles where they are expected to lose, unless CUDA was asked for by name.
    """
    names = variants(p, platform, a, b, masks)
    last = [n for n in names if n == "direct"]
    first = [n for n in names if n == SAMPLED or (n == TURNED and _turns(p, a, b, masks))]
    rest = [n for n in names if n not in (*first, "direct", TURNED)]
    tiles = [*first, *rest, *(n for n in names if n == TURNED and n not in first)]
    lose = platform == "cuda" and p.implementation is None and _lose(p, a, b, masks)
    return ["dense", *tiles, *last] if lose else [*tiles, "dense", *last]


def _turns(p: Any, a: Any, b: Any, masks: Any) -> bool:
    """Whether a lies transposed in memory, and would run as panels."""
    lists = max([1, *(v.shape[0] for v in (a, b, *masks) if v is not None)])
    tiles = lists * -(-a.shape[1] // 128) * -(-b.shape[2] // 256)
    return p.turned and tiles >= _FILLING_TILES


def _lose(p: Any, a: Any, b: Any, masks: Any) -> bool:
    """Whether tiles are expected to take longer than the dense product.

    The rows of a tile take what one of them keeps: blocks of few rows leave them nothing to skip,
    unless a row is kept or left out as a whole.
    """
    if transposes("cuda", masks):
        (columns, rows), width, mask = p.blocks[1], b.shape[1], masks[1]
    elif masks[0] is not None:
        (rows, columns), width, mask = p.blocks[0], a.shape[2], masks[0]
    else:
        (rows, columns), width, mask = p.blocks[2], b.shape[2], masks[2]
    if mask is None or columns >= width:
        return False
    on_result = mask is masks[2]
    whole = 64 if on_result else 128 // a.dtype.itemsize
    boxes = rows % 32 == 0 and columns % whole == 0
    kind = "boxes" if boxes else "sampled" if on_result else "picked"
    return rows < _FEW_ROWS or (p.density is not None and p.density >= _DENSE_FROM[kind])
