"""Jitted functions of every family, called again and again."""

import gc
import time

import jax

from soak.families import FAMILIES, Sizes
from soak.memory import held
from soak.report import Finding, progress

#: Calls of one function in a row, and calls between two measurements of memory.
ROW, EVERY = 200, 20_000
#: Bytes that memory may grow by in a million calls, and by fragmentation.
MOST_BYTES, PIECES = 4e6, 8e6
#: The share of the calls that is not counted: pools and arenas grow to their size.
WARM = 0.1


def calls(count: int, every: int = EVERY) -> list[Finding]:
    """Call one function of each family, in turns, `count` times in all, and measure memory after
    every `every` calls.
    """
    runs = []
    for number, make in enumerate(FAMILIES.values()):
        program = make(Sizes((1, number), (2, number)))
        operands = [jax.device_put(v) for v in program.operands]
        runs.append((jax.jit(program.run), operands))
        jax.block_until_ready(runs[-1][0](*operands))
    done, first, begin = 0, None, time.perf_counter()
    turn, highest = 0, 0
    with progress("calls", count) as step:
        while done < count:
            run, operands = runs[turn % len(runs)]
            turn, row = turn + 1, min(ROW, count - done)
            for _ in range(row - 1):
                run(*operands)
            jax.block_until_ready(run(*operands))
            done += row
            step(row)
            if done // every > (done - row) // every:
                gc.collect()
                now = held(settle=False)
                if first is None and done >= WARM * count:
                    first = now
                highest = max(highest, now.bytes)
                step(0, f"{now.bytes / 1e6:.0f} MB, {now.own} objects of jaxsparse")
    seconds = time.perf_counter() - begin
    gc.collect()
    last = held(settle=False)
    grown = last - (first or last)
    most = PIECES + MOST_BYTES * count / 1e6
    return [
        Finding("calls of jitted functions", f"{done}, {1e6 * seconds / done:.0f} us each"),
        Finding("memory afterwards", f"{last.bytes / 1e6:.0f} MB, at most {highest / 1e6:.0f} MB"),
        Finding(
            "memory grew by",
            f"{grown.bytes / 1e6:.1f} MB",
            f"{most / 1e6:.0f} MB",
            grown.bytes <= most,
        ),
        Finding("objects of jaxsparse grew by", f"{grown.own}", "0", grown.own <= 0),
    ]
