"""Runs the CUDA handlers on a machine without a GPU: `python run.py <library>`, with a library of
`build.py`. Prints a table, what is wrong, and the kernels that no call launched; exits 1 if there
is either.

There are two kinds of calls, in processes of their own. Calls drawn from the contracts run on every
device, also with exact workspaces, and made invalid. Calls of the operations, and of the executors
of pruned weights, are lowered for one of the devices, and run on it.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from ffi.stand_in.loaded import Call, StandIn

#: An error that gives only the runtime's own code.
UNEXPLAINED = re.compile(r"CUDA error \d+ of the stand-in")
#: Packed arrays have many sizes: an executor says only that one of them is wrong.
PACKED = "packed operands do not fit the executor"
DEVICES = ("sm_90", "sm_80", "sm_86", "sm_89", "sm_100", "sm_120")
#: Problems of each operation, and tiles of each executor, by device; 1 on the others. The first
#: device has the most kernels.
PROBLEMS, TILES = {"sm_90": 4}, {"sm_90": 6}


class Job:
    """Runs calls and counts the results. `trace`: prints each call to stderr before it runs."""

    def __init__(self, library: Path, trace: bool):
        self.stand_in, self.trace = StandIn(library), trace
        images = self.stand_in.launches().values()
        #: The devices that the library has code for.
        self.devices = [i for i in range(len(DEVICES)) if any(k[i] is not None for k in images)]
        self.ran: collections.Counter[str] = collections.Counter()
        self.refused: collections.Counter[str] = collections.Counter()
        self.variants: set[str] = set()
        self.wrong: dict[str, dict[str, Any]] = {}

    def run(self, call: Call, device: int, why: str, must_run: bool = False) -> str:
        """Run one call; `why`: where it comes from. Returns the handler's error, or ""."""
        if self.trace:
            print(f"{why} on {DEVICES[device]}: {call}", file=sys.stderr)
        error, faults = self.stand_in.run(call, device)
        (self.refused if error else self.ran)[call.handler] += 1
        if not error and "variant" in call.attributes:
            self.variants.add(f"{call.handler} {call.attributes['variant']}")
        unexplained = UNEXPLAINED.search(error) and PACKED not in error
        if faults or unexplained or (error and must_run):
            text = f"{call.handler}: " + ("; ".join(faults) or error)
            kind = re.sub(r"\d{2,}", "N", text)
            new = {"text": text, "call": f"{why}: {call}", "devices": []}
            devices = self.wrong.setdefault(kind, new)["devices"]
            devices += [] if DEVICES[device] in devices else [DEVICES[device]]
        return error

    def result(self) -> dict[str, Any]:
        """As JSON."""
        launches = {k: sum(n or 0 for n in v) for k, v in self.stand_in.launches().items()}
        return {
            "ran": self.ran,
            "refused": self.refused,
            "devices": [DEVICES[i] for i in self.devices],
            "variants": sorted(self.variants),
            "wrong": self.wrong,
            "launches": launches,
        }


def drawn(job: Job, count: int) -> None:
    """Run calls from the contracts: valid, with exact workspaces, and made invalid."""
    from ffi.stand_in import drawn

    for name in drawn.handlers():
        for call in drawn.valid(name, 0, count):
            for device in job.devices:
                ran = not job.run(call, device, "drawn")
                exact = drawn.exact(job.stand_in, call, device) if ran else None
                if exact is not None:
                    job.run(exact, device, "exact workspace", must_run=True)
        for call, change in drawn.spoilt(name, 1, 10 * count):
            for device in job.devices:
                job.run(call, device, change)


def operations(job: Job, name: str) -> None:
    """Run the calls that the operations and the executors of pruned weights make on a GPU."""
    import jax
    from ffi.stand_in import frozen
    from ffi.stand_in import operations as ops
    from ffi.stand_in.pretend import pretend

    jax.config.update("jax_numpy_dtype_promotion", "strict")
    device = DEVICES.index(name)
    if device not in job.devices:
        return
    with pretend(name):
        for calls in (ops.calls(PROBLEMS.get(name, 1)), frozen.calls(TILES.get(name, 1))):
            for call, why in calls:
                job.run(call, device, why, must_run=True)


def start(library: Path, kind: str, count: int, trace: bool = False) -> dict[str, Any]:
    """Start a process; returns its result or, if it died, the call that it died in."""
    options = ["--kind", kind, "--count", str(count), *(["--trace"] if trace else [])]
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", __file__, str(library), *options],
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    if done.returncode == 0:
        return json.loads(done.stdout)
    if not trace:
        return start(library, kind, count, trace=True)
    wrong = {"died": {"text": "the process died", "call": done.stderr[-4000:], "devices": [kind]}}
    nothing = {"ran": {}, "refused": {}, "variants": [], "devices": [], "launches": {}}
    return nothing | {"wrong": wrong}


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("library", type=Path)
    parser.add_argument("--kind", choices=["drawn", *DEVICES], help="this process's calls alone")
    parser.add_argument("--count", type=int, default=25, help="calls of a row of samples")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--trace", action="store_true", help="name each call before it runs")
    given = parser.parse_args()
    if given.kind:
        job = Job(given.library, given.trace)
        if given.kind == "drawn":
            drawn(job, given.count)
        else:
            operations(job, given.kind)
        print(json.dumps(job.result()))
        return 0
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        futures = [
            pool.submit(start, given.library, kind, given.count) for kind in ("drawn", *DEVICES)
        ]
    from ffi.stand_in.report import report

    return report([future.result() for future in futures])


if __name__ == "__main__":
    sys.exit(main())
