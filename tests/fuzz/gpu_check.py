"""NVIDIA's compute-sanitizer over random problems of every operation:

    python tests/fuzz/gpu_check.py --tools memcheck racecheck --count 6 --seed 0 --jobs 8

A process for each tool and operation. Prints a table; exits 1 where a tool found something, or a
process died again and again before it could. The tool itself now and then dies while it starts, or
loses track of a launch: such a process is started anew.
"""

import argparse
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))
from fuzz.problems import OPS

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
TRIES, SECONDS = 4, 900
PROGRAM = Path(__file__).with_name("run.py")
#: Operations that run NCCL, which asks for kernels that it does not have: an error that it ignores.
BETWEEN_GPUS = ("dispatch", "ring_attention")
#: Frees what XLA would keep, so that an access past an array is one past an allocation.
ENVIRONMENT = {
    "XLA_PYTHON_CLIENT_ALLOCATOR": "platform",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    # In graphs memcheck reports XLA's own kernels; autotuning runs kernels of others.
    "XLA_FLAGS": "--xla_gpu_enable_command_buffer= --xla_gpu_autotune_level=0",
}


class Outcome(NamedTuple):
    """What a tool said of an operation: a word, and its output."""

    tool: str
    op: str
    word: str
    text: str


def command(tool: str, op: str, count: int, seed: int, keep: str) -> list[str]:
    """The tool over `count` problems."""
    ours = [] if tool == "initcheck" else ["--kernel-name", "kns=jaxsparse"]
    checker = ["compute-sanitizer", "--tool", tool, "--target-processes", "all", *ours]
    checker += ["--error-exitcode", "9", "--show-backtrace", "no", "--print-limit", "5"]
    checker += ["--report-api-errors", "no"] if op in BETWEEN_GPUS else []
    problems = ["--op", op, "--count", str(count), "--seed", str(seed), "--keep", keep]
    return [*checker, sys.executable, str(PROGRAM), *problems, "--seconds", str(SECONDS - 60)]


def word_of(text: str, code: int) -> str:
    """What was found, or "clean"; "" where the tool failed: it died before the problems had run, or
    lost a launch, which it counts as a fault.
    """
    if "Internal Sanitizer Error" in text:
        return ""
    ran = re.search(r"\d+ problems, \d+ cases, (\d+) problems wrong", text)
    found = re.search(r"(?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)", text)
    if ran is None and found is None:
        return ""
    faults = next((int(n) for n in found.groups() if n), 0) if found else 0
    if faults:
        return f"{faults} faults"
    if code or ran is None or int(ran[1]):
        return "problems wrong" if ran else "died"
    return "clean"


def check(tool: str, op: str, count: int, seed: int) -> Outcome:
    """Run one process, again where the tool died."""
    text = ""
    for _ in range(TRIES):
        with tempfile.TemporaryDirectory() as keep:
            try:
                done = subprocess.run(
                    command(tool, op, count, seed, keep),
                    env={**os.environ, **ENVIRONMENT},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    timeout=SECONDS,
                )
            except subprocess.TimeoutExpired:
                return Outcome(tool, op, "too slow", text)
        text = done.stdout
        if word := word_of(text, done.returncode):
            return Outcome(tool, op, word, text)
    return Outcome(tool, op, "the tool failed", text)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=TOOLS)
    parser.add_argument("--op", nargs="+", choices=sorted(OPS), default=sorted(OPS))
    parser.add_argument("--count", type=int, default=6, help="problems of each operation")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    console, outcomes = Console(stderr=True), dict[tuple[str, str], str]()
    wrong = False
    todo = [(tool, op) for tool in given.tools for op in given.op]
    with (
        Progress(console=console) as progress,
        concurrent.futures.ThreadPoolExecutor(given.jobs) as pool,
    ):
        task = progress.add_task("compute-sanitizer", total=len(todo))
        runs = [pool.submit(check, tool, op, given.count, given.seed) for tool, op in todo]
        for run in concurrent.futures.as_completed(runs):
            outcome = run.result()
            outcomes[outcome.tool, outcome.op] = outcome.word
            progress.console.print(f"{outcome.tool}, {outcome.op}: {outcome.word}")
            if outcome.word != "clean":
                wrong = True
                print(f"== {outcome.tool}, {outcome.op}\n{outcome.text[-4000:]}", flush=True)
            progress.advance(task)
    table = Table("operation", *given.tools)
    for op in given.op:
        table.add_row(op, *(outcomes[tool, op] for tool in given.tools))
    Console(width=120).print(table)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
