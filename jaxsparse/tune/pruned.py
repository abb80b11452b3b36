"""`js.pruned.tune`: measure the executors and their tunables for one call, and keep the best in the
plan.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import itertools
import math
import numbers
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypedDict, Unpack

import jax
import msgspec
import numpy as np
from jax.typing import ArrayLike, DTypeLike
from rich.progress import Progress

from jaxsparse.core.checks import check_float, is_traced
from jaxsparse.core.device import device_kind, home_platform
from jaxsparse.core.types import Activation, Layout, Padding, Pair
from jaxsparse.ffi import Implementation, platform
from jaxsparse.ops.pruned_conv.api import prepare as prepare_conv
from jaxsparse.ops.pruned_conv.api import pruned_conv
from jaxsparse.ops.pruned_matmul.api import prepare as prepare_matmul
from jaxsparse.ops.pruned_matmul.api import pruned_matmul
from jaxsparse.ops.pruned_matmul.run import pointwise
from jaxsparse.pruned.executor import Problem
from jaxsparse.pruned.executors.choice import executor, ranked
from jaxsparse.pruned.files import write
from jaxsparse.pruned.plan import Tuned
from jaxsparse.pruned.weight import PrunedWeight
from jaxsparse.select.config import settings
from jaxsparse.select.table import DENSE
from jaxsparse.tune.cache import default_folder
from jaxsparse.version import __version__

MOST = 100  # candidates


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of the cache: the best, and how long was looked for it (None: at every candidate)."""

    best: Tuned
    seconds: float | None


class Options(TypedDict, total=False):
    """Of `js.pruned_matmul` and `js.pruned_conv`: what a call is tuned for."""

    strides: Pair
    padding: Padding
    dilation: Pair
    bias: ArrayLike | None
    activation: Activation | None
    precision: jax.lax.PrecisionLike
    preferred_element_type: DTypeLike | None
    layout: Layout
    implementation: Implementation


def tune(
    pruned: PrunedWeight,
    x: ArrayLike | jax.ShapeDtypeStruct,
    *,
    seconds: float = 120.0,
    folder: Path | str | None = None,
    progress: bool = True,
    **options: Unpack[Options],
) -> PrunedWeight:
    """Measure every executor and its tunables on calls like `x`; keep what was fastest.

    The default executor and dense are measured first, whatever the time, so a tuned plan is not
    slower than they are; then the first choices of the other executors, then their further
    tunables. A
    candidate that cannot be packed or compiled is left out with a warning. Results are kept on disk
    by device, version, pattern and call, so a second run measures nothing, unless the first ran out
    of time and this one has more.

    Args:
        pruned: from `js.pruned.inspect`.
        x: an input of the shape and dtype to tune for (its values do not matter), or a
            jax.ShapeDtypeStruct.
        seconds: stop after about this long, with the best found by then; positive and finite.
        folder: where results are kept; None is the user's cache.
        progress: show a bar.
        **options: of `js.pruned_matmul` or `js.pruned_conv`; an implementation other than the
            reference.

    Returns:
        The weight with a plan that holds one more measured choice.

    Raises:
        TypeError, ValueError: as the op's; inside of a function that is traced; under
            `js.config(variant=)` or where the reference runs, which leave nothing to choose; what
            the last candidate raised when none can run.
    """
    _check(pruned, x, seconds, folder, options)
    x = (
        jax.numpy.zeros(x.shape, x.dtype)
        if isinstance(x, jax.ShapeDtypeStruct)
        else jax.numpy.asarray(x)
    )
    op = pruned_matmul if pruned.kind == "matmul" else pruned_conv
    weight = pruned.astype(x.dtype)
    problem = _problem(weight, x, options)
    file = Path(folder or default_folder()) / f"{_key(problem, options)}.plan.json"
    found = _kept(file, problem, seconds)
    if found is None:
        found = _measure(op, weight, x, problem, options, seconds, progress)
        file.parent.mkdir(parents=True, exist_ok=True)
        write(file, msgspec.json.encode(found))
    plan, best = pruned.plan, found.best
    others = tuple(t for t in plan.tuned if dataclasses.replace(t, **_WHAT) != _call_of(best))
    return dataclasses.replace(pruned, plan=dataclasses.replace(plan, tuned=(*others, best)))


def _check(pruned: Any, x: Any, seconds: Any, folder: Any, options: Options) -> None:
    """What `tune` itself takes; the options of the op are checked by name only."""
    if not isinstance(pruned, PrunedWeight):
        raise TypeError(
            f"pruned must be a PrunedWeight, not {type(pruned).__name__}: js.pruned.inspect makes "
            "one"
        )
    if not hasattr(x, "shape") or not hasattr(x, "dtype"):
        raise TypeError(f"x must be an array or a ShapeDtypeStruct, not {type(x).__name__}")
    check_float("x", x)
    if any(map(is_traced, (pruned.values, x, jax.numpy.zeros(())))):
        raise TypeError("js.pruned.tune is traced: it measures, so it is called outside of jit")
    if isinstance(seconds, bool) or not isinstance(seconds, numbers.Real):
        raise TypeError(f"seconds={seconds!r}; it takes a positive number")
    if not 0 < float(seconds) < math.inf:
        raise ValueError(f"seconds={seconds!r}; it takes a positive, finite number")
    if folder is not None and not isinstance(folder, str | Path):
        raise TypeError(f"folder must be a path or None, not {type(folder).__name__}")
    _, _, *known = inspect.signature(_prepare_of(pruned)).parameters
    op = f"pruned_{pruned.kind}"
    for name in options:
        if name not in known:
            raise TypeError(f"js.pruned.tune and js.{op} take no argument {name!r}")
    demanded = settings().demanded(op)
    if demanded is not None:
        raise ValueError(f"js.pruned.tune under js.config(variant={demanded!r}) has no choice")
    runs = platform.plan(op, options.get("implementation"), platform.NAMES).get(home_platform())
    if runs == "reference":
        raise ValueError(f"js.pruned.tune: the reference of {op} runs here, which has no executors")


def _prepare_of(pruned: PrunedWeight) -> Callable[..., Any]:
    return prepare_matmul if pruned.kind == "matmul" else prepare_conv


_PAST: Any = object()  # the last tunables of an executor
_WHAT: dict[str, Any] = {"executor": "", "candidate": None, "microseconds": 0.0}


def _call_of(tuned: Tuned) -> Tuned:
    return dataclasses.replace(tuned, **_WHAT)


def _problem(weight: PrunedWeight, x: Any, options: Any) -> Problem:
    """What the executors are asked for a call."""
    params, operand = _prepare_of(weight)(x, weight, **options)
    params, operand, _ = pointwise(params, operand)
    return params.problem(home_platform(), operand)


def _key(problem: Problem, options: Any) -> str:
    facts = (__version__, device_kind(problem.platform), problem.pattern.digest)
    call = dataclasses.replace(problem, pattern=None)
    return hashlib.sha256(repr((facts, call, sorted(options.items()))).encode()).hexdigest()[:32]


def _kept(file: Path, problem: Problem, seconds: float) -> Measured | None:
    """What the file holds for this call and so much time; None where it is to be measured."""
    if not file.is_file():
        return None
    try:
        found = msgspec.json.decode(file.read_bytes(), type=Measured)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    of_call = dataclasses.replace(found.best, microseconds=0.0) in _candidates(problem)
    enough = found.seconds is None or found.seconds >= seconds
    return found if of_call and enough else None


def _tuned(problem: Problem, name: str, candidate: Any) -> Tuned:
    call = (problem.platform, problem.x_shape, problem.dtype, problem.geometry)
    return Tuned(*call, problem.channels_first, name, candidate, 0.0, problem.precision)


def _candidates(problem: Problem) -> list[Tuned]:
    """What runs by default, dense, then the executors in turn: the first tunables of each, the
    second of each, and so on.
    """
    names = ranked(problem)
    names = sorted(names, key=lambda name: (name != names[0], name != DENSE))
    columns = [executor(problem.platform, name).candidates(problem) for name in names]

    def each() -> Iterator[Tuned]:
        for row in itertools.zip_longest(*columns, fillvalue=_PAST):
            for name, candidate in zip(names, row, strict=True):
                if candidate is not _PAST:
                    yield _tuned(problem, name, candidate)

    return list(itertools.islice(each(), MOST))


def _measure(
    op: Callable[..., Any],
    weight: PrunedWeight,
    x: Any,
    problem: Problem,
    options: Any,
    seconds: float,
    progress: bool,
) -> Measured:
    """Each candidate in turn, several rounds, so that a slow moment hits all alike."""
    noise = np.random.default_rng(0).standard_normal(x.shape, np.float32)
    value = jax.numpy.asarray(noise).astype(x.dtype)
    found = _candidates(problem)
    first = len({found[0].executor, DENSE} & {tuned.executor for tuned in found})
    stop = time.perf_counter() + seconds
    calls: list[tuple[Tuned, Callable[[Any], Any], list[float]]] = []
    failed: Exception | None = None
    looked_at = 0
    with Progress(transient=True, disable=not progress) as bar:
        task = bar.add_task("tuning", total=2 * len(found))
        for looked_at, tuned in enumerate(found, 1):
            plan = dataclasses.replace(weight.plan, tuned=(tuned,))
            frozen = dataclasses.replace(weight, plan=plan)
            run = jax.jit(lambda x, w=frozen: op(x, w, **options))
            try:
                jax.block_until_ready(run(value))
            except (ValueError, RuntimeError) as error:  # of packing, of XLA, of the device
                failed = error
                warnings.warn(
                    f"js.pruned.tune leaves out {tuned.executor} {tuned.candidate}: {error}",
                    RuntimeWarning,
                    stacklevel=3,
                )
            else:
                calls.append((tuned, run, []))
            bar.advance(task)
            if time.perf_counter() > stop and looked_at >= first:
                break
        if failed is not None and not calls:
            raise failed
        for turn in range(12):
            if time.perf_counter() > stop and turn > 0:
                break
            for _, run, took in calls:
                start = time.perf_counter()
                jax.block_until_ready(run(value))
                took.append(time.perf_counter() - start)
            bar.advance(task, len(found) / 12)
    medians = [float(np.median(took)) for _, _, took in calls]
    best = int(np.argmin(medians))
    tuned = dataclasses.replace(calls[best][0], microseconds=round(1e6 * medians[best], 2))
    return Measured(tuned, None if looked_at == len(found) else seconds)
