"""How `grouped_matmul` and `grouped_gated` choose: by shape, which of the tensor-core tiles is
filled.
"""

import dataclasses
import math

from jaxsparse.core.device import MULTIPROCESSORS, is_hopper
from jaxsparse.core.dtypes import HALF
from jaxsparse.select.choice import Chooser, Offer, Reason, register
from jaxsparse.select.problem import Problem
from jaxsparse.select.table import Measured
from jaxsparse.select.variants import also_runs, table

OP, GATED = "grouped_matmul", "grouped_gated"
TILE_ROWS = 128
COLUMNS = {"n128": 128, "n256": 256}
#: `narrow`: of the time of a wave of tiles of 256 columns, what one of 128 columns takes.
_MEASURED = Measured(OP, "cuda")
#: The variants of `grouped_gated`.
ONE_PASS, TWO_PRODUCTS = "one pass", "two products"


@dataclasses.dataclass(frozen=True)
class GroupedProblem:
    """One grouped product: lhs [m, k], `groups` matrices, `sorted_rows` rows in order of group,
    `outputs` columns and `out_rows` rows of the result.
    """

    platform: str
    lhs_shape: tuple[int, ...]
    dtype: str
    itemsize: int
    groups: int
    sorted_rows: int
    outputs: int
    out_rows: int
    precision: str = "default"

    @property
    def known(self) -> Problem:
        """What tuning tables know it by."""
        features: dict[str, float] = {
            "rows": self.sorted_rows,
            "depth": self.lhs_shape[1],
            "outputs": self.outputs,
            "groups": self.groups,
        }
        highest = self.dtype == "float32" and self.precision == "highest"
        dtype = "highest" if highest else self.dtype
        return Problem(OP, self.platform, dtype, features, self.sorted_rows)


def candidates(problem: GroupedProblem) -> Offer:
    """The variants whose handler takes this problem, in order of preference."""
    rows = table(OP, problem.platform)
    names = [name for name in rows if reason_against(problem, name) is None]
    if problem.platform == "cpu":
        return Offer(tuple(names))
    best = min(COLUMNS, key=lambda name: waves(problem, name))
    return Offer(tuple(sorted(names, key=lambda name: (name == "direct", name != best))))


def waves(problem: GroupedProblem, variant: str) -> float:
    """How long a variant takes, in waves of tiles of 256 columns: groups fill the last of their
    tiles half on the mean.
    """
    rows = problem.sorted_rows / TILE_ROWS + min(problem.groups, problem.sorted_rows) / 2
    tiles = rows * -(-problem.outputs // COLUMNS[variant])
    each = _MEASURED("narrow") if variant == "n128" else 1.0
    return each * math.ceil(tiles / MULTIPROCESSORS)


def against(problem: GroupedProblem) -> dict[str, str]:
    """Name -> why that variant does not take the problem."""
    reasons = {name: reason_against(problem, name) for name in table(OP, problem.platform)}
    return {name: why for name, why in reasons.items() if why}


def reason_against(problem: GroupedProblem, variant: str) -> str | None:
    """Why `variant` does not take this problem, or None. The handlers refuse by the same rules."""
    if problem.platform == "cpu" or variant == "direct":
        return None
    if problem.dtype == "float32" and problem.precision == "highest":
        return "float32 products are asked for, not TF32"
    return tile_reason(problem)


def tile_reason(problem: GroupedProblem) -> str | None:
    """Why the tensor-core kernels do not take these shapes."""
    vector, groups, outputs = 16 // problem.itemsize, problem.groups, problem.outputs
    rows, depth = problem.lhs_shape
    if 0 in (problem.sorted_rows, groups, rows, depth, outputs, problem.out_rows):
        return "nothing to sum"
    if depth % vector or outputs % vector:
        return f"{depth} and {outputs} columns: both must be multiples of {vector}"
    widest = max(depth, outputs)
    if groups * widest >= 2**31:
        return "groups times columns pass 2^31"
    if max(rows, problem.out_rows) * (widest // vector) >= 2**31:
        return "an operand passes 32 GiB"
    if not is_hopper():
        return "the device is not of compute capability 9.0"
    return None


CHOOSER = register(Chooser(OP, GroupedProblem, candidates, against, by_density=True))


@dataclasses.dataclass(frozen=True)
class GatedProblem:
    """One `grouped_gated`: its product, and what keeps it from one pass.

    `alike`: all operands are of one dtype. `int32`: group_sizes and gather are. `most_rows`:
    sorted rows that the kernels count. `offered`: the CUDA kernels are built, and may be taken.
    `single`: a variant of one product is demanded.
    """

    product: GroupedProblem
    alike: bool
    int32: bool
    most_rows: int
    offered: bool = True
    single: bool = False

    @property
    def known(self) -> Problem:
        """What tuning tables know it by."""
        return dataclasses.replace(self.product.known, op=GATED)


def gated_reason(problem: GatedProblem) -> str | None:
    """Why one pass does not take the problem, or None."""
    product = problem.product
    if product.dtype not in HALF or not problem.alike:
        return "it takes 16-bit operands"
    if not problem.int32:
        return "group_sizes and gather are not int32"
    if product.sorted_rows > problem.most_rows:
        return "more sorted rows than the kernels count"
    if why := tile_reason(product):
        return why
    if not problem.offered:
        return "the CUDA kernels are not built, or not asked for"
    if problem.single:
        return "js.config asks for a variant of grouped_matmul"
    return None if product.platform == "cuda" else f"{product.platform} multiplies twice"


def gated_candidates(problem: GatedProblem) -> Offer:
    """One pass where a kernel takes it, else two products."""
    if gated_reason(problem):
        return Offer((TWO_PRODUCTS,), Reason.NO_ONE_CALL)
    return Offer((ONE_PASS, TWO_PRODUCTS), Reason.ONE_CALL)


def gated_against(problem: GatedProblem) -> dict[str, str]:
    """Name -> why that variant does not take the problem."""
    why = gated_reason(problem)
    return {} if why is None else {ONE_PASS: why}


also_runs(GATED, "cuda", ONE_PASS, TWO_PRODUCTS)
also_runs(GATED, "cpu", TWO_PRODUCTS)
GATED_CHOOSER = register(
    Chooser(GATED, GatedProblem, gated_candidates, gated_against, by_name=False)
)
