"""What choosing is about: what could run a problem, and the choice with its reason."""

import dataclasses
import enum
import functools
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

import jax
import jax.numpy as jnp

from jaxsparse.select.costs import Candidate, cheapest
from jaxsparse.select.problem import Problem
from jaxsparse.select.table import Rung


class Reason(enum.Enum):
    """Why a choice is what it is, as `js.explain` says it."""

    DEMANDED = "js.config(variant=)"
    TABLE = "tuning table"
    FIRST = "by rule: the first in the order of js.variants that takes this problem"
    COUNT = "chosen by the kernel from the count"
    DENSITY = "lax.switch on the density of the index"
    ONE_RUNG = "tuning table: one variant at every density"
    NOT_IN_TABLE = "no variant of the tuning table takes this problem: the first that does"
    UNMEASURED = "nothing measured for {device}: first variant; js.tune makes a table"
    PLAN = "measured for this plan"
    ESTIMATE = "estimated; js.pruned.tune measures"
    RATES = "the least time by the rates of the variant table"
    SAFER = "a full mask may lose more by the others than they gain on the mean"
    SMALL = "by rule: a small kernel, or nothing faster takes this problem"
    DENSE_FIRST = "by rule: dense products are faster for most activations"
    ONE_CALL = "one call takes it"
    NO_ONE_CALL = "no single call takes it"
    ASKED = "the call names it"
    SIZES = "by the sizes of the layer"
    PACKED = "as its layers were packed"
    POLICY = "js.config(policy=)"
    POLICY_BY_DENSITY = "js.config(policy=), by its function of the density"


class Against(enum.Enum):
    """Why the kernel itself does not choose, as `js.explain` says it."""

    ALONE = "{variant} alone takes {us:.1f} us on average, they {runner_up_us:.1f}"
    NOT_ASKED = "js.config(selection=) does not ask for it"
    NO_RATES = (
        "the tuning table has no rates of {op} in {dtype} for any variant that takes this problem"
    )
    NOT_OFFERED = "{op} offers no such choice"


@dataclasses.dataclass(frozen=True)
class Offer:
    """What an op could run a problem with.

    Attributes:
        names: the variants that take the problem, in order of preference where nothing was
            measured.
        reason: why the first of them comes first where no table says more.
        costs: what each measured variant would cost alone.
        together: the candidates of the one call whose kernel chooses; empty where there are none.
        tiles: of a full mask, list by list.
        against: why there is no such call.
        ladder: which of them to take up to which density, where no table says more: the density is
            known on the device, and `lax.switch` takes one.
        reach: the log distance up to which a table's entry of another shape, of the same dtype,
            stands for this one; inf takes the nearest, of whatever dtype.
    """

    names: tuple[str, ...]
    reason: Reason = Reason.FIRST
    costs: Mapping[str, Candidate] = dataclasses.field(default_factory=dict)
    together: tuple[Candidate, ...] = ()
    tiles: tuple[int, ...] = (1,)
    against: Against = Against.NOT_OFFERED
    ladder: tuple[Rung, ...] = ()
    reach: float = math.log(4)

    @property
    def by_device(self) -> bool:
        """Whether the op has a kernel that chooses, be there candidates for it or not."""
        return bool(self.together) or self.against is not Against.NOT_OFFERED


@dataclasses.dataclass(frozen=True)
class Choice:
    """What was chosen for one problem.

    Attributes:
        how: "static" while tracing, "device" by the kernel, "switch" by `lax.switch`.
        rungs: of the ladder: one when static, none where the device chooses.
        reason: why.
        candidates: what the device chooses among.
        names: every variant that takes the problem.
        against_device: why the device does not choose, where that was considered.
        us: expected microseconds, the mean over typical masks; None where nothing was measured.
        runner_up: what would be next; "device" is the kernel's own choice.
        runner_up_us: its microseconds.
        op, dtype, device: whose choice, of what, where.
        by: a policy's function of the density, which picks among the candidates, or the rungs.
    """

    how: str
    rungs: tuple[Rung, ...]
    reason: Reason
    candidates: tuple[Candidate, ...] = ()
    names: tuple[str, ...] = ()
    against_device: Against | None = None
    us: float | None = None
    runner_up: str | None = None
    runner_up_us: float | None = None
    op: str = ""
    dtype: str = ""
    device: str = ""
    by: Callable[[jax.Array], jax.Array] | None = None

    @property
    def first(self) -> str:
        """The variant of a static choice; of others the one at the highest density."""
        return self.rungs[-1].variant if self.rungs else self.candidates[0].variant

    @property
    def why(self) -> str:
        """The reason in a sentence."""
        if self.against_device is None:
            return self.reason_why
        speaks = self.against_device.value.format(**self._facts)
        return f"{self.reason_why}; not on the device: {speaks}"

    @property
    def reason_why(self) -> str:
        """The reason alone, without what speaks against a choice on the device."""
        why = self.reason.value.format(**self._facts)
        if self.reason is not Reason.DENSITY or self.by is not None:
            return why
        steps = [f"{rung.variant} up to {100 * rung.up_to:.3g} %" for rung in self.rungs[:-1]]
        return f"{why}: {', '.join([*steps, f'then {self.rungs[-1].variant}'])}"

    @property
    def _facts(self) -> dict[str, Any]:
        return vars(self) | {"variant": self.first}

    def variant(self, counts: Sequence[int], n_tiles: int) -> str:
        """The variant that runs where list i has `counts[i]` tiles; `n_tiles` are all of list 0."""
        if self.by is not None:
            place = int(self.by(jnp.float32(counts[0] / n_tiles if n_tiles else 0.0)))
            several = self.candidates or self.rungs
            return several[min(max(place, 0), len(several) - 1)].variant
        if self.candidates:
            return cheapest(self.candidates, *counts).name
        density = counts[0] / n_tiles if n_tiles else 0.0
        fits = (r.variant for r in self.rungs if density <= r.up_to)
        return next(fits, self.rungs[-1].variant)


class Known(Protocol):
    """A problem of some op: a frozen, hashable value, whose equal ones have equal choices."""

    @property
    def known(self) -> Problem:
        """What tuning tables know it by."""
        ...


P = TypeVar("P", bound=Known)


@dataclasses.dataclass(frozen=True)
class Chooser(Generic[P]):
    """How one op chooses.

    Attributes:
        op: its name.
        problem: makes a problem of plain values.
        candidates: what could run a problem, and what it costs.
        against: name -> why that variant does not take a problem.
        by_name: whether `js.config(variant="name")` speaks to it, too; else only a `Variant` of
            this very op does.
        by_density: whether what runs may be picked by the density, on the device.
    """

    op: str
    problem: Callable[..., P]
    candidates: Callable[[P], Offer]
    against: Callable[[P], Mapping[str, str]]
    by_name: bool = True
    by_density: bool = False


_choosers: dict[str, Chooser[Any]] = {}


def register(chooser: Chooser[P]) -> Chooser[P]:
    """Let an op choose by this; a second one of the same name takes the place of the first."""
    _choosers[chooser.op] = chooser
    return chooser


def chooser(op: str) -> Chooser[Any]:
    """The chooser of `op`.

    Raises:
        KeyError: for an op without variants.
    """
    return _choosers[op]


def choosers() -> tuple[str, ...]:
    """The ops that have one."""
    return tuple(_choosers)


Asked = ParamSpec("Asked")
Made = TypeVar("Made")


class Remembered(Generic[Asked, Made]):
    """A function that keeps the `most` latest results by `key(*args)`, and none of its arguments:
    a weight that is dropped is freed.

    Args:
        function: what is called for a key that is not kept.
        key: equal where the results are; it takes the function's arguments.
        most: how many results are kept.
    """

    def __init__(
        self, function: Callable[Asked, Made], key: Callable[Asked, Hashable], most: int
    ) -> None:
        self._function, self._key, self._most = function, key, most
        self._kept: OrderedDict[Hashable, Made] = OrderedDict()
        self._lock = threading.Lock()
        functools.update_wrapper(self, function)

    def __call__(self, *args: Asked.args, **kwargs: Asked.kwargs) -> Made:
        """The result for `key(*args)`: kept, or worked out now."""
        name = self._key(*args, **kwargs)
        with self._lock:
            if name in self._kept:
                self._kept.move_to_end(name)
                return self._kept[name]
        made = self._function(*args, **kwargs)
        with self._lock:
            self._kept[name] = made
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return made

    def cache_clear(self) -> None:
        """Forget every result."""
        with self._lock:
            self._kept.clear()


def remember(
    key: Callable[Asked, Hashable], most: int = 1024
) -> Callable[[Callable[Asked, Made]], Remembered[Asked, Made]]:
    """Decorate a function as `Remembered`."""
    return lambda function: Remembered(function, key, most)
