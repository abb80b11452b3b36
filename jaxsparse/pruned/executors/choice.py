"""The executors of each platform, and their packed operands, kept per problem."""

import hashlib
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxsparse.pruned.executor import Executor, Packed, Problem
from jaxsparse.pruned.executors.conv import CONV_EXECUTORS
from jaxsparse.pruned.executors.cuda import CUDA_EXECUTORS
from jaxsparse.pruned.executors.dense import DENSE_CPU, DENSE_CUDA
from jaxsparse.pruned.executors.depthwise import DEPTHWISE
from jaxsparse.pruned.executors.dots import DOTS
from jaxsparse.pruned.strips import STRIPS
from jaxsparse.select import pruned
from jaxsparse.select.variants import also_runs

EXECUTORS: dict[str, tuple[Executor, ...]] = {
    "cpu": (STRIPS, DOTS, DEPTHWISE, DENSE_CPU),
    "cuda": (*CUDA_EXECUTORS, *CONV_EXECUTORS, DENSE_CUDA),
}

for _op in ("pruned_matmul", "pruned_conv"):
    for _platform, _executors in EXECUTORS.items():
        also_runs(_op, _platform, *(e.name for e in _executors))

# Of packed operands: they serve the next trace of a call; a compiled function has its own.
MOST_PACKED, MOST_BYTES = 256, 256 << 20


def executor(platform: str, name: str) -> Executor:
    """The executor of that name.

    Raises:
        ValueError: when the platform has none of it.
    """
    for found in EXECUTORS[platform]:
        if found.name == name:
            return found
    names = ", ".join(e.name for e in EXECUTORS[platform])
    raise ValueError(f"executor {name!r} is not one of {platform}'s: {names}")


def against(problem: Problem, constant: bool = True) -> dict[str, str]:
    """Name -> why that executor cannot run the problem. `constant`: the values are known."""
    return pruned.reasons(EXECUTORS[problem.platform], problem, constant)


class Latest:
    """What was made last, by key, within two bounds; the very last one is kept whatever it takes.

    Args:
        most: how many.
        most_bytes: of all arrays together.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._kept: OrderedDict[Any, Packed] = OrderedDict()
        self._lock = threading.Lock()
        self._gone: deque[Any] = deque()

    def get(self, key: Any, make: Callable[[], Packed]) -> Packed:
        """What `make` gave for `key`, or gives now."""
        while self._gone:
            self._drop(self._gone.popleft())
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        made = make()  # not under the lock: it may take seconds
        dropped = []  # outside of the lock, too: an owner may have much to undo
        with self._lock:
            dropped.append(self._kept.pop(key, None))
            self._kept[key] = made
            while len(self._kept) > 1 and (len(self._kept) > self._most or self._heavy()):
                dropped.append(self._kept.popitem(last=False))
        return made

    def drop_with(self, owner: Any, key: Any) -> None:
        """Keep what was made for `key` no longer than `owner` lives, and the next call after it.

        An object may be collected while the lock is held: its end is noted, and no more.
        """
        weakref.finalize(owner, self._gone.append, key).atexit = False

    def _drop(self, key: Any) -> None:
        with self._lock:
            gone = self._kept.pop(key, None)
        del gone  # outside of the lock

    def _heavy(self) -> bool:
        return sum(packed.nbytes for packed in self._kept.values()) > self._most_bytes


_operands = Latest(MOST_PACKED, MOST_BYTES)


def ranked(problem: Problem, constant: bool = True) -> tuple[str, ...]:
    """The executors that can run the problem: by estimated cost, those that never won last."""
    return tuple(pruned.ranked(EXECUTORS[problem.platform], problem, constant))


def packed(problem: Problem, name: str, candidate: Any, values: np.ndarray | None) -> Packed:
    """The packed operands of executor `name`: kept for the next trace, within bounds.

    Args:
        problem: the call.
        name: of an executor that can run it.
        candidate: one of its tunables, None for its own choice.
        values: the kept values where they are known.
    """

    def _kept(key: Any, make: Callable[[], Packed]) -> Packed:
        def made() -> Packed:
            _operands.drop_with(problem.pattern, key)
            return make()

        return _operands.get(key, made)

    chosen = executor(problem.platform, name)
    if not chosen.needs_values:
        return _kept((problem.key, name, candidate), lambda: chosen.pack(problem, candidate))
    if values is None:
        raise ValueError(f"{name}: {pruned.OPERAND}")
    known = np.ascontiguousarray(values, np.float32)
    digest = hashlib.sha256(known.tobytes()).digest()
    key = (problem.key, name, candidate, digest)
    return _kept(key, lambda: chosen.pack(problem, candidate, known))
