"""How `masked_matmul` chooses, from what is known while tracing.

The tiles' own cost is theirs to compare, on the device. Here it is tiles against XLA's dense
product, which the device cannot choose: by the size of the blocks, by the share of them that
the caller says is kept, and by where the operands lie.
"""

import dataclasses

from jaxsparse.core.device import is_hopper
from jaxsparse.select.choice import Chooser, Offer, register
from jaxsparse.select.problem import Problem
from jaxsparse.select.table import DENSE, Measured, Rung
from jaxsparse.select.variants import also_runs, table

OP = "masked_matmul"
Block = tuple[int, int]
Shape = tuple[int, ...]
#: The variant of a mask on the result alone. It reads b with K contiguous, its own layout
#: where b is the other operand of a gradient.
SAMPLED = "sampled"
#: The variant of columns that are kept one by one, for 32 rows together.
SORTED = "sorted"
#: The variant of blocks of few rows: 16 rows are condensed along K by themselves.
FINE = "fine"
#: Panels of an operand that lies transposed: it transposes what the mask keeps.
TURNED = "turned"
#: `few_rows`: strips of blocks of fewer lost to the dense product at every density that was
#: measured. `fine_until`: share of K that one of 16 rows keeps up to which `fine` is faster
#: than dense, in 16 bits and in float32. `strips_until`: share that one of 64 rows keeps up to
#: which strips are faster than `fine`.
#: `filling_tiles`: panels, 128 rows by 256 columns, that leave the device half full. `dense_from`:
#: share of kept blocks, in twentieths, from which the dense product was the faster one (4096 x 4096
#: by 4096 x 2048, float32): where TMA loads whole blocks ("boxes"); where columns are "picked"; of
#: the result ("sampled").
_MEASURED = Measured(OP, "cuda")
#: `strip_cycles`: of a tile of so many rows (HEIGHTS) for a column of its strip and 64 outputs.
#: `over_dense`, of a mask on each array: the time of the kernels over that of the dense product is
#: the first number times the share that the tiles cover, and the second times the entries of a
#: block to the power of minus the third. `least_macs`: multiply-adds of a product, and for each
#: block of the mask, that are worth a look at the number of kept blocks first.
_ON_CPU = Measured(OP, "cpu")
HEIGHTS, PANEL = (6, 4, 2, 1), 64

for _platform in ("cpu", "cuda"):
    also_runs(OP, _platform, DENSE)


@dataclasses.dataclass(frozen=True)
class MatmulProblem:
    """One call: a [L or 1, m, k], b [L or 1, k, n], the masks of a, b and the result, [L or 1,
    rows, columns] or None, and their blocks.

    `products` and `blocks_of_all`: how many products, and blocks of all masks. `turned`: a is the
    transpose of an array that exists. `density`: the share of the blocks that masks are said to
    keep. `own`: an implementation is demanded by name. `asked`: the op that the user called, where
    it is another one.
    """

    platform: str
    a: Shape
    b: Shape
    masks: tuple[Shape | None, Shape | None, Shape | None]
    blocks: tuple[Block, Block, Block]
    products: int
    blocks_of_all: int
    dtype: str
    itemsize: int
    precision: str
    turned: bool = False
    density: float | None = None
    own: bool = False
    asked: str = ""

    @property
    def known(self) -> Problem:
        """What tuning tables know it by."""
        features: dict[str, float] = {
            "products": self.products,
            "rows": self.a[1],
            "depth": self.a[2],
            "outputs": self.b[2],
        }
        for name, mask, block in zip(("a", "b", "out"), self.masks, self.blocks, strict=True):
            for axis, size in zip(("rows", "columns"), block, strict=True):
                features[f"{name}_block_{axis}"] = 0 if mask is None else size
        highest = self.platform == "cuda" and self.dtype == "float32"
        dtype = "highest" if highest and self.precision == "highest" else self.dtype
        return Problem(OP, self.platform, dtype, features, self.blocks_of_all, asked=self.asked)

    @property
    def flips(self) -> bool:
        """Whether the transposed product runs."""
        return transposes(self.platform, self.masks)

    @property
    def lists(self) -> int:
        """The longest first axis, at least 1."""
        return max([1, *(s[0] for s in (self.a, self.b, *self.masks) if s is not None)])


def has_boxes(itemsize: int, block: Block) -> bool:
    """Whether blocks of a are whole 32 rows and 128 bytes: TMA loads them in place, and only the
    index asks for the mask, which it takes as it is.
    """
    return block[0] % 32 == 0 and block[1] % (128 // itemsize) == 0


def sorts(itemsize: int, block: Block, right: Shape, masks: tuple[object, object, object]) -> bool:
    """Whether columns of a can be sorted by the pieces of 32 rows that keep them: a mask on a
    alone, whose blocks are not boxes. `right` is the shape of b.
    """
    lists, depth, columns = right
    alone = masks[0] is not None and masks[1] is None and masks[2] is None
    pieces = block[0] % 32 == 0 and block[1] * itemsize % 128 != 0
    return alone and pieces and columns * itemsize % 128 == 0 and lists * depth < 2**31


def transposes(platform: str, masks: tuple[object, object, object]) -> bool:
    """Whether the transposed product runs: the CUDA kernels condense what a mask on the left
    operand leaves.
    """
    return platform == "cuda" and masks[0] is None and masks[1] is not None


def candidates(problem: MatmulProblem) -> Offer:
    """What to choose among, in order of preference where no table says more. XLA's dense product
    comes before the kernel on CUDA cores, which it beats on all but nearly empty masks; and before
    the tiles where they are expected to lose, unless CUDA was asked for by name.
    """
    names = [n for n in table(OP, problem.platform) if reason_against(problem, n) is None]
    if problem.platform == "cpu":
        return _on_cpu(problem, (*names, DENSE))
    last = [n for n in names if n == "direct"]
    fine = FINE in names and _takes(problem) == FINE
    wins = {SAMPLED: True, TURNED: _turns(problem), FINE: fine}
    first = [n for n in names if wins.get(n)]
    rest = [n for n in names if n not in (*wins, "direct")]
    tiles = [*first, *rest, *(n for n in names if n in wins and n not in first)]
    lose = not problem.own and not fine and _lose(problem)
    return Offer((DENSE, *tiles, *last) if lose else (*tiles, DENSE, *last))


def against(problem: MatmulProblem) -> dict[str, str]:
    """Name -> why that variant does not take the problem."""
    reasons = {name: reason_against(problem, name) for name in table(OP, problem.platform)}
    return {name: why for name, why in reasons.items() if why}


def _on_cpu(problem: MatmulProblem, names: tuple[str, ...]) -> Offer:
    """The kernels up to the share of kept blocks from which the dense product is expected to be the
    faster one, which a call looks at first where it is not told.
    """
    places = [place for place, mask in enumerate(problem.masks) if mask is not None]
    macs = problem.products * problem.a[1] * problem.a[2] * problem.b[2]
    least, each = _ON_CPU.several("least_macs")
    if problem.own or len(places) != 1 or macs < max(least, each * problem.blocks_of_all):
        return Offer(names)
    share = _dense_from(problem, places[0])
    if problem.density is not None:
        return Offer((DENSE, *names[:-1]) if problem.density >= share else names)
    return Offer(names, ladder=(Rung(share, names[0]), Rung(1.0, DENSE)))


def _dense_from(problem: MatmulProblem, place: int) -> float:
    """The share of kept blocks, at random places, at which the kernels of a CPU take as long as the
    dense product.
    """
    low, high = 0.0, 1.0
    for _ in range(20):
        middle = (low + high) / 2
        over = _over_dense(problem, place, middle) >= 1
        low, high = (low, middle) if over else (middle, high)
    return high


def _over_dense(problem: MatmulProblem, place: int, density: float) -> float:
    """The time of the kernels of a CPU over that of the dense product: its tiles cover every block
    that one of their rows and columns has.
    """
    rows, columns = problem.blocks[place]

    def covered(height: float, width: float) -> float:
        return 1 - (1 - density) ** (max(height, 1) * max(width, 1))

    share = covered(1 if place == 1 else HEIGHTS[0] / rows, PANEL / columns)
    if place == 0 and columns >= problem.a[2]:
        share = density  # whole rows are left out
    elif place == 0:
        cycles = _ON_CPU.several("strip_cycles")
        costs = [c * covered(h / rows, 1) / h for h, c in zip(HEIGHTS, cycles, strict=True)]
        share = min(costs) / (cycles[0] / HEIGHTS[0])
    scale, entries, power = _ON_CPU.several("over_dense", ("a", "b", "result")[place])
    return scale * share + entries * (rows * columns) ** -power


def _turns(problem: MatmulProblem) -> bool:
    """Whether a lies transposed in memory, and would run as panels."""
    tiles = problem.lists * -(-problem.a[1] // 128) * -(-problem.b[2] // 256)
    return problem.turned and tiles >= _MEASURED("filling_tiles")


def _takes(problem: MatmulProblem) -> str:
    """What is expected to be the fastest for blocks of few rows that are said to keep so much:
    `fine`, strips ("auto"), or the dense product; "" where that is not said, or not asked.
    """
    (rows, columns), width = problem.blocks[0], problem.a[2]
    if problem.flips:
        (columns, rows), width = problem.blocks[1], problem.b[1]
    tiles = problem.lists * -(-problem.a[1] // 256) * -(-problem.b[2] // 128)
    known = problem.density is not None and problem.masks[2] is None
    if not known or rows >= 32 or columns >= width or tiles < _MEASURED("filling_tiles"):
        return ""

    def kept(together: int) -> float:
        """The share of K that at least one of so many rows keeps."""
        return 1 - (1 - (problem.density or 0.0)) ** max(together / rows, 1)

    if kept(64) <= _MEASURED("strips_until"):
        return "auto"
    kind = "16 bits" if problem.itemsize == 2 else "float32"
    return FINE if kept(16) <= _MEASURED("fine_until", kind) else DENSE


def _lose(problem: MatmulProblem) -> bool:
    """Whether tiles are expected to take longer than the dense product.

    The rows of a tile take what one of them keeps: blocks of few rows leave them nothing to skip,
    unless a row is kept or left out as a whole.
    """
    a, b, masks, blocks = problem.a, problem.b, problem.masks, problem.blocks
    place = 1 if problem.flips else 0 if masks[0] is not None else 2
    (rows, columns), width = blocks[place], (a[2], b[1], b[2])[place]
    if place == 1:
        rows, columns = columns, rows
    if masks[place] is None or columns >= width:
        return False
    if (taken := _takes(problem)) != "":
        return taken != "auto"
    whole = 64 if place == 2 else 128 // problem.itemsize
    boxes = rows % 32 == 0 and columns % whole == 0
    kind = "boxes" if boxes else "sampled" if place == 2 else "picked"
    few = problem.density is not None and problem.density >= _MEASURED("dense_from", kind)
    return rows < _MEASURED("few_rows", kind) or few


def reason_against(problem: MatmulProblem, variant: str) -> str | None:
    """Why `variant` does not take this problem, or None. The handlers refuse by the same rules."""
    if problem.platform == "cpu" or variant == "direct":
        return None
    flips, lists, masks = problem.flips, problem.lists, problem.masks
    (_, m, k), n = problem.a, problem.b[2]
    if flips:
        m, n = n, m
    vector = 16 // problem.itemsize
    if problem.dtype == "float32" and problem.precision == "highest":
        return "float32 products are asked for, not TF32"
    left = masks[1 if flips else 0]
    rows, columns = problem.blocks[1 if flips else 0]
    block = (columns, rows) if flips else (rows, columns)
    if variant in ("pieces", "panels", TURNED):
        if left is None or masks[2] is not None:
            return "tiles of pieces need a mask on an operand and none on the result"
        if not has_boxes(problem.itemsize, block):
            return "tiles of pieces need blocks of whole 32 rows and 128 bytes of K"
    if variant == SORTED:
        right = (problem.a[0], k, n) if flips else problem.b
        given = (masks[1], masks[0], masks[2]) if flips else masks
        if not sorts(problem.itemsize, block, right, given):
            return (
                "sorted columns need a mask on one operand and no other, of whole 32 rows but not "
                "of whole 128 bytes of K, and rows of whole 128 bytes in the other operand"
            )
    if variant == FINE and (left is None or masks[2] is not None or None not in masks[:2]):
        return "fine products need a mask on one operand, and no other"
    if variant == TURNED and (masks[0] is None or m % vector or lists * m * k >= 2**33):
        return "turned pieces need a mask on a, columns of 16 bytes, and at most 2^33 entries"
    if variant == SAMPLED:
        if masks[2] is None or masks[0] is not None or masks[1] is not None:
            return "sampled products need a mask on the result, and none on an operand"
        if max(m, n) > 2**20 or max(lists, k // vector) * n >= 2**31:
            return "a side of the result passes 2^20, or b 2^31 rows or pieces of 16 bytes"
    if not is_hopper():
        return "the device is not of compute capability 9.0"
    if variant == FINE:
        if k == 0 or n % vector:
            return f"K = {k} and {n} columns: these must be a multiple of {vector}"
        tall = lists * -(-m // 256)
        most = max(m, n, tall * -(-n // 128), 16 * tall * -(-k // (32 * vector)))
        if most >= 2**30 or k > 2**19:
            return "more than 2^30 rows, columns, tiles or groups of 16 rows, or 2^19 columns of a"
        return None
    if k == 0 or k % vector or n % vector:
        return f"K = {k} and {n} columns: both must be multiples of {vector}"
    if lists * m >= 2**31 or k > 2**19 or n >= 2**30 or lists * -(-m // 128) > 65535:
        return "more than 2^31 rows, 2^19 columns of a, or 65535 tiles of rows"
    if left is not None and -(-left[1 if flips else 2] // 32) > 8192:
        return "a row of a's mask passes 8192 words"
    return None


CHOOSER = register(Chooser(OP, MatmulProblem, candidates, against, by_density=True))
KEPT_CHOOSER = register(dataclasses.replace(CHOOSER, op="kept_matmul"))
