"""Runs calls by hand: `python run.py <calls> <first case>` runs `calls` cases of every handler, the
first of each as it was drawn, and says on stdout what each case is, and then how it ended.

A case is its number: (handler, seed). Whoever started this sees by the last line which call killed
the process or never came back.
"""

import json
import sys
import time
from pathlib import Path

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from ffi.hostile.draw import HANDLERS, Call, draw, fill
from ffi.hostile.spoil import spoil

import jaxsparse  # noqa: F401

VALID = 8  # of every case so many is left as drawn


def make(case: int) -> tuple[Call, str, list[np.ndarray]]:
    """The call, what was changed, and its operands."""
    handler = list(HANDLERS.values())[case % len(HANDLERS)]
    rng = np.random.default_rng(case)
    call, change = draw(handler, rng), ""
    if case // len(HANDLERS) % VALID:
        call, change = spoil(call, rng)
    operands = [fill(call, *operand, rng) for operand in call.operands]
    return call, change, operands


def run(case: int) -> dict[str, object]:
    """How the call of this number ends, and how long it took."""
    call, change, operands = make(case)
    types = [jax.ShapeDtypeStruct(shape, dtype) for _, shape, dtype in call.results]
    begin = (time.perf_counter(), time.process_time())
    try:
        ffi = jax.ffi.ffi_call(
            f"jaxsparse_{call.handler}", types, input_output_aliases=call.aliases
        )
        compiled = jax.jit(lambda *a: ffi(*a, **call.attributes)).lower(*operands).compile()
        begin = (time.perf_counter(), time.process_time())
        jax.block_until_ready(compiled(*operands))
        error = ""
    except Exception as caught:
        error = f"{type(caught).__name__}: {caught}".splitlines()[0][:300]
    seconds = min(time.perf_counter() - begin[0], time.process_time() - begin[1])
    return {"case": case, "change": change, "error": error, "seconds": seconds}


def main() -> None:
    """Command line."""
    last, first = int(sys.argv[1]), int(sys.argv[2])
    for case in range(first, last):
        print(json.dumps({"begins": case}), flush=True)
        print(json.dumps(run(case)), flush=True)


if __name__ == "__main__":
    main()
