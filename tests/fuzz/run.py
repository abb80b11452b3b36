"""Random problems for some time: `python tests/fuzz/run.py --seconds 60 --seed 1`.

A failure is printed with the line that runs it again, and added to `tests/fuzz/corpus`, which the
tests replay. Exits 1 when there was one.
"""

import argparse
import os
import sys
import time
import traceback
import zlib
from pathlib import Path

if __name__ == "__main__":
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = flags + " --xla_force_host_platform_device_count=4"

import jax

sys.path.insert(0, str(Path(__file__).parents[1]))
from fuzz.problems import OPS, draw
from fuzz.settings import settings
from fuzz.ways import WAYS, way_of

CORPUS = Path(__file__).parent / "corpus"
#: Operands drawn for one problem, which is compiled once.
DRAWS = 20
#: Problems until JAX drops what it compiled.
CLEAR = 200


def check(op: str, seed: int, number: int, draws: int = DRAWS) -> str:
    """Run one problem with so many draws of its operands; what is wrong, or nothing."""
    return checked(op, seed, number, draws)[0]


def checked(op: str, seed: int, number: int, draws: int) -> tuple[str, int]:
    """The same, and how many cases were compared."""
    problem, drawn = draw(op, seed, number)
    chosen, context = settings(drawn)
    way = way_of(problem, drawn)
    try:
        with context:
            why = WAYS[way](problem, drawn, draws)
    except Exception:
        why = traceback.format_exc(limit=6)
    return why and f"{way}: {why}; {problem.text}{chosen}", problem.compared


def mark(op: str, seed: int, number: int) -> str:
    """What a problem is, in eight digits: when its generator changes, so do they."""
    return f"{zlib.crc32(draw(op, seed, number)[0].text.encode()):08x}"


def corpus() -> list[tuple[str, int, int, int, str]]:
    """Problems that failed once: (op, seed, number, draws, mark)."""
    lines = [
        line.split() for f in sorted(CORPUS.glob("*.txt")) for line in f.read_text().splitlines()
    ]
    return [(op, int(seed), int(number), int(draws), its) for op, seed, number, draws, its in lines]


def seed_of(text: str) -> int:
    """A number as it is given; of "new" one that is drawn, which the last line prints."""
    return int.from_bytes(os.urandom(4)) if text == "new" else int(text)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=seed_of, default=0, help='a number, or "new"')
    parser.add_argument("--number", type=int, help="this problem alone")
    parser.add_argument("--count", type=int, default=10**9, help="problems of each op at most")
    parser.add_argument("--draws", type=int, default=DRAWS, help="of a problem's operands")
    parser.add_argument("--keep", type=Path, default=CORPUS, help="folder for what fails")
    parser.add_argument("--op", action="append", choices=sorted(OPS), help="repeatable")
    given = parser.parse_args()
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    begin, ran, cases, wrong = time.monotonic(), 0, 0, 0
    numbers = range(given.count) if given.number is None else [given.number]
    for number in numbers:
        for op in given.op or sorted(OPS):
            if time.monotonic() - begin > given.seconds:
                break
            why, compared = checked(op, given.seed, number, given.draws)
            ran, cases = ran + 1, cases + compared
            if ran % CLEAR == 0:
                jax.clear_caches()
            if not why:
                continue
            wrong += 1
            again = f"--op {op} --seed {given.seed} --number {number} --draws {given.draws}"
            print(f"python tests/fuzz/run.py {again}\n  {why}", flush=True)
            if given.number is None:
                line = f"{op} {given.seed} {number} {given.draws} {mark(op, given.seed, number)}\n"
                with (given.keep / f"{op}.txt").open("a") as file:
                    file.write(line)
        if time.monotonic() - begin > given.seconds:
            break
    spent = time.monotonic() - begin
    print(f"seed {given.seed}: {ran} problems, {cases} cases, {wrong} problems wrong, ", end="")
    print(f"{spent:.0f} s", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
