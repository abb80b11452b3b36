"""Runs calls by hand: `python run.py <last> <first> <platform> [<library>]` runs the cases from
`first` up to `last`, and says on stdout what each case is, and then how it ended. With a library of
`decoders.build` the checks of the platform's handlers run alone, on the CPU.

A case is its number: (handler, seed). The last line says which call killed the process or never
returned.
"""

import json
import sys
import time
from pathlib import Path

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from ffi.hostile import decoders
from ffi.hostile.draw import Call, draw, fill, handlers
from ffi.hostile.spoil import spoil

import jaxsparse  # noqa: F401

VALID = 8  # of every case so many is left as drawn


def is_drawn(case: int, platform: str) -> bool:
    """Whether the call of this number is left as it was drawn."""
    return case // len(handlers(platform)) % VALID == 0


def make(case: int, platform: str) -> tuple[Call, str, list[np.ndarray]]:
    """The call, what was changed, and its operands."""
    every = list(handlers(platform).values())
    rng = np.random.default_rng(case)
    call, change = draw(every[case % len(every)], rng), ""
    if not is_drawn(case, platform):
        call, change = spoil(call, rng)
    operands = [fill(call, *operand, rng) for operand in call.operands]
    return call, change, operands


def run(call: Call, operands: list[np.ndarray], prefix: str = "jaxsparse_") -> tuple[str, float]:
    """How the call ends, and how long it took."""
    types = [jax.ShapeDtypeStruct(shape, dtype) for _, shape, dtype in call.results]
    begin = (time.perf_counter(), time.process_time())
    try:
        ffi = jax.ffi.ffi_call(prefix + call.handler, types, input_output_aliases=call.aliases)
        compiled = jax.jit(lambda *a: ffi(*a, **call.attributes)).lower(*operands).compile()
        begin = (time.perf_counter(), time.process_time())
        jax.block_until_ready(compiled(*operands))
        error = ""
    except Exception as caught:
        error = f"{type(caught).__name__}: {caught}".splitlines()[0][:300]
    return error, min(time.perf_counter() - begin[0], time.process_time() - begin[1])


def main() -> None:
    """Command line."""
    last, first, platform, *library = sys.argv[1:]
    prefix = "jaxsparse_"
    if library:
        decoders.register(Path(library[0]))
        prefix = decoders.PREFIX
    for case in range(int(first), int(last)):
        print(json.dumps({"begins": case}), flush=True)
        call, change, operands = make(case, platform)
        error, seconds = run(call, operands, prefix)
        ended = {"case": case, "change": change, "error": error, "seconds": seconds}
        print(json.dumps(ended), flush=True)


if __name__ == "__main__":
    main()
