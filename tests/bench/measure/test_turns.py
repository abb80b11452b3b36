"""Tests of the lock by which processes share a device.

Threads stand for processes: a lock belongs to an open file, and each `Turns` opens its own.
"""

import fcntl
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jaxsparse.bench.measure.timing import interleave
from jaxsparse.bench.measure.turns import VARIABLE, Turns

PAUSE = 0.05


def _work(folder: Path) -> list[tuple[str, float, float]]:
    turns, found = Turns(folder), []
    for _ in range(3):
        with turns.prepare():
            begin = time.monotonic()
            time.sleep(PAUSE)
            found.append(("prepare", begin, time.monotonic()))
            with turns.measure():
                begin = time.monotonic()
                time.sleep(PAUSE)
                found.append(("measure", begin, time.monotonic()))
    return found


def test_who_measures_is_alone_and_nobody_waits_for_ever(tmp_path: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        spans = [each for found in pool.map(_work, [tmp_path] * 3) for each in found]
    assert len(spans) == 18
    measured = [span for span in spans if span[0] == "measure"]
    for _, begin, end in measured:
        others = [s for s in spans if s[1:] != (begin, end) and s[1] < end and begin < s[2]]
        assert not others


def _try_prepare(folder: Path) -> None:
    with (folder / "device").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)


class _Held:
    name, calls, sets = "held", 1, 1

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._warm = False

    def enqueue(self, which: int) -> None:
        if not self._warm:  # others may prepare beside the first round, which is not timed
            self._warm = True
            return _try_prepare(self._folder)
        with pytest.raises(BlockingIOError):
            _try_prepare(self._folder)

    def wait(self) -> None:
        pass

    def error(self, which: int) -> float:
        return 0.0


def test_benchmarks_share_a_device_where_the_environment_names_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert not interleave([_Held(tmp_path)], samples=1)["held"].failure
    _try_prepare(tmp_path)
