"""`js.pruned.tune`: measure the executors and their tunables for one call, and keep the best in the
plan.
"""

import dataclasses
import hashlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np
from rich.progress import Progress

from jaxsparse.ops.pruned_conv import prepare as prepare_conv
from jaxsparse.ops.pruned_conv import pruned_conv
from jaxsparse.ops.pruned_matmul import prepare as prepare_matmul
from jaxsparse.ops.pruned_matmul import pruned_matmul
from jaxsparse.ops.pruned_matmul_run import pointwise
from jaxsparse.pruned.executor import Problem
from jaxsparse.pruned.executors import executor, ranked
from jaxsparse.pruned.weight import PrunedWeight, Tuned
from jaxsparse.select.select import device_kind, home_platform
from jaxsparse.tune.cache import default_folder
from jaxsparse.version import __version__

MOST = 100  # candidates


def tune(
    pruned: PrunedWeight,
    x: Any,
    *,
    seconds: float = 120.0,
    folder: Path | None = None,
    progress: bool = True,
    **options: Any,
) -> PrunedWeight:
    """Measure every executor and its tunables on calls like `x`; keep what was fastest.

    Dense is among them, so a tuned plan does not lose to it. Results are kept on disk by device,
    version, pattern and call, so a second run measures nothing.

    Args:
        pruned: from `js.inspect`.
        x: an input of the shape and dtype to tune for (its values do not matter).
        seconds: stop after about this long, with the best found by then.
        folder: where results are kept; None is the user's cache.
        progress: show a bar.
        **options: of `js.pruned_matmul` or `js.pruned_conv`.

    Returns:
        The weight with a plan that holds one more measured choice.

    Raises:
        TypeError, ValueError: as the op's.
    """
    op = pruned_matmul if pruned.kind == "matmul" else pruned_conv
    weight = pruned.astype(x.dtype)
    problem = _problem(weight, x, options)
    file = (folder or default_folder()) / f"{_key(problem, options)}.plan.json"
    best = _kept(file)
    if best is None:
        best = _measure(op, weight, x, problem, options, seconds, progress)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(msgspec.json.encode(best))
    plan = pruned.plan
    others = tuple(t for t in plan.tuned if dataclasses.replace(t, **_WHAT) != _call_of(best))
    return dataclasses.replace(pruned, plan=dataclasses.replace(plan, tuned=(*others, best)))


_WHAT: dict[str, Any] = {"executor": "", "candidate": None, "microseconds": 0.0}


def _call_of(tuned: Tuned) -> Tuned:
    return dataclasses.replace(tuned, **_WHAT)


def _problem(weight: PrunedWeight, x: Any, options: Any) -> Problem:
    """What the executors are asked for a call."""
    prepare = prepare_matmul if weight.kind == "matmul" else prepare_conv
    params, operand = prepare(x, weight, **options)
    params, operand, _ = pointwise(params, operand)
    return params.problem(home_platform(), operand)


def _key(problem: Problem, options: Any) -> str:
    facts = (__version__, device_kind(problem.platform), problem.pattern.digest)
    call = dataclasses.replace(problem, pattern=None)
    return hashlib.sha256(repr((facts, call, sorted(options.items()))).encode()).hexdigest()[:32]


def _kept(file: Path) -> Tuned | None:
    if not file.is_file():
        return None
    try:
        return msgspec.json.decode(file.read_bytes(), type=Tuned)
    except msgspec.DecodeError:
        return None  # measured again


def _candidates(problem: Problem) -> list[Tuned]:
    def each() -> Iterator[tuple[str, Any]]:
        for name in ranked(problem):
            for candidate in executor(problem.platform, name).candidates(problem):
                yield name, candidate

    call = (problem.platform, problem.x_shape, problem.dtype, problem.geometry)
    return [
        Tuned(*call, problem.channels_first, name, candidate, 0.0, problem.precision)
        for name, candidate in each()
    ][:MOST]


def _measure(
    op: Callable[..., Any],
    weight: PrunedWeight,
    x: Any,
    problem: Problem,
    options: Any,
    seconds: float,
    progress: bool,
) -> Tuned:
    """Each candidate in turn, several rounds, so that a slow moment hits all alike."""
    noise = np.random.default_rng(0).standard_normal(x.shape, np.float32)
    value = jax.numpy.asarray(noise).astype(x.dtype)
    found = _candidates(problem)
    took: list[list[float]] = [[] for _ in found]
    stop = time.perf_counter() + seconds
    calls = []
    with Progress(transient=True, disable=not progress) as bar:
        task = bar.add_task("tuning", total=2 * len(found))
        for tuned in found:
            plan = dataclasses.replace(weight.plan, tuned=(tuned,))
            frozen = dataclasses.replace(weight, plan=plan)
            run = jax.jit(lambda x, w=frozen: op(x, w, **options))
            jax.block_until_ready(run(value))
            calls.append(run)
            bar.advance(task)
            if time.perf_counter() > stop:
                break
        for _ in range(12):
            if time.perf_counter() > stop and all(took[: len(calls)]):
                break
            for i, run in enumerate(calls):
                start = time.perf_counter()
                jax.block_until_ready(run(value))
                took[i].append(time.perf_counter() - start)
            bar.advance(task, len(found) / 12)
    medians = [float(np.median(t)) for t in took[: len(calls)]]
    best = int(np.argmin(medians))
    return dataclasses.replace(found[best], microseconds=round(1e6 * medians[best], 2))
