"""How `pruned_matmul` and `pruned_conv` choose among executors: what was measured for the plan is
first, then they are ordered by their own estimates; what never won comes after dense.
"""

import dataclasses
from collections.abc import Hashable
from typing import Any

from jaxsparse.select.choice import Chooser, Offer, Reason, register
from jaxsparse.select.costs import EVERY, Candidate
from jaxsparse.select.problem import Problem

OPS = ("pruned_matmul", "pruned_conv")

OPERAND = (
    "the values are an operand, and this executor builds them in: "
    "close over the weight in a jitted function"
)


#: How far, in log distance, a table's entry of another weight stands for this one: a tenth of its
#: sizes. Executors depend on the pattern, of which the table knows the sizes alone.
REACH = 0.1

#: An executor (`jaxsparse.pruned.executor.Executor`), of which the choice knows `name`,
#: `needs_values`, `reason_against(call)`, `cost(call)` and `won(call)`.
Way = Any


@dataclasses.dataclass(frozen=True)
class PrunedProblem:
    """One call on a frozen weight.

    Attributes:
        op: that the user called.
        call: everything static about the call, as the executors take it.
        ways: the executors of its platform.
        sizes: rows of the product, inputs, outputs, kept weights, all weights.
        constant: whether the values are known while tracing.
        measured: the executor that was measured to be the fastest for this call, if any.
        portable: whether what runs may leave this process.
    """

    op: str
    call: Any
    ways: tuple[Way, ...]
    sizes: tuple[int, int, int, int, int]
    constant: bool = True
    measured: str | None = None
    portable: bool = False

    @property
    def key(self) -> Hashable:
        """Equal where problems are; it does not keep the weight's pattern alive."""
        facts = self.sizes, self.constant, self.measured, self.portable
        return self.op, self.call.key, self.ways, *facts

    @property
    def known(self) -> Problem:
        """What tuning tables know it by."""
        names = ("rows", "depth", "outputs", "kept")
        features: dict[str, float] = dict(zip(names, self.sizes[:4], strict=True))
        return Problem(self.op, self.call.platform, self.call.dtype, features, self.sizes[4])


def against(problem: PrunedProblem) -> dict[str, str]:
    """Name -> why that executor cannot run the problem."""
    return reasons(problem.ways, problem.call, problem.constant)


def reasons(ways: tuple[Way, ...], call: Any, constant: bool) -> dict[str, str]:
    """Name -> why that executor cannot run a call. `constant`: the values are known."""
    found: dict[str, str] = {}
    for way in ways:
        why = way.reason_against(call)
        if why is None and way.needs_values and not constant:
            why = OPERAND
        if why is not None:
            found[way.name] = why
    return found


def ranked(ways: tuple[Way, ...], call: Any, constant: bool) -> dict[str, float]:
    """Name -> estimated microseconds of the executors that can run a call, in order: by estimate,
    those that never won last.
    """
    bad = reasons(ways, call, constant)
    able = [(not way.won(call), way.cost(call), way.name) for way in ways if way.name not in bad]
    return {name: us for _, us, name in sorted(able, key=lambda each: each[:2])}


def candidates(problem: PrunedProblem) -> Offer:
    """The executors in order: the measured one, then as `ranked`."""
    estimates = ranked(problem.ways, problem.call, problem.constant)
    tied = {way.name for way in problem.ways if way.needs_values and problem.portable}
    names = [name for name in estimates if name not in tied]
    measured = problem.measured in names
    names.sort(key=lambda name: not measured or name != problem.measured)
    every = float(EVERY)
    costs = {n: Candidate(n, -1, EVERY, (estimates[n], 0.0, every, 0.0, 0.0)) for n in names}
    reason = Reason.PLAN if measured else Reason.ESTIMATE
    return Offer(tuple(names), reason, costs, reach=REACH)


CHOOSERS = tuple(register(Chooser(op, PrunedProblem, candidates, against)) for op in OPS)
