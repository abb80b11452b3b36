"""A call that somebody made by hand is refused or runs: no crash, no hang, whatever it says.

`JAXSPARSE_HOSTILE_CALLS` is how many calls of every handler are tried (40 by default).
"""

import json
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from ffi.hostile.draw import HANDLERS
from ffi.hostile.run import VALID, make

from jaxsparse.ffi.register import module

CALLS = int(os.environ.get("JAXSPARSE_HOSTILE_CALLS", "40")) * len(HANDLERS)
SILENCE = 240.0  # seconds until a call counts as hung: imports and compilation on a busy machine
RUN = Path(__file__).parent / "hostile/run.py"

pytestmark = pytest.mark.skipif(module("cpu")[0] is None, reason="no CPU module")


def results(first, last):
    """(case, result) for each case that ended; stops where the process died or hung."""
    env = os.environ | {"JAX_PLATFORMS": "cpu"}
    command = [sys.executable, str(RUN), str(last), str(first)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    )
    lines: queue.Queue[str] = queue.Queue()
    said: list[str] = []
    readers = [
        threading.Thread(target=lambda: [lines.put(line) for line in [*process.stdout, ""]]),
        threading.Thread(target=lambda: said.extend(process.stderr)),
    ]
    for reader in readers:
        reader.start()
    try:
        while line := lines.get(timeout=SILENCE):
            yield json.loads(line)
    except queue.Empty:
        said.append("nothing came back\n")
    finally:
        process.kill()
        for reader in readers:
            reader.join()
        process.communicate()  # closes the pipes
    if process.returncode != 0:
        yield {"died": process.returncode, "said": "".join(said)[-3000:]}


def name_of(case):
    call, change, _ = make(case)
    return f"case {case}: {call.handler}: {change or 'as drawn'}: {call}"


def test_no_call_by_hand_kills_or_hangs():
    endings, deaths, begun, first = {}, [], 0, 0
    while first < CALLS:
        for found in results(first, min(first + 2000, CALLS)):
            if "begins" in found:
                begun = found["begins"]
            elif "died" in found:
                deaths.append(f"{name_of(begun)}\n{found}")
            else:
                endings[found["case"]] = found
        first = begun + 1
        assert len(deaths) < 5, "\n\n".join(deaths)
    assert not deaths, "\n\n".join(deaths)
    slow = [f"{name_of(c)}: {e['seconds']} s" for c, e in endings.items() if e["seconds"] > 1]
    assert not slow, "\n\n".join(slow)
    drawn = {c: e for c, e in endings.items() if c // len(HANDLERS) % VALID == 0}
    refused = [
        f"{name_of(c)}: {e['error']}"
        for c, e in drawn.items()
        if e["error"] and "table or expand points" not in e["error"]
    ]
    assert not refused, "\n\n".join(refused)
    spoilt = [e for c, e in endings.items() if c not in drawn]
    assert sum(bool(e["error"]) for e in spoilt) > len(spoilt) / 3


@pytest.mark.parametrize(
    ("handler", "attribute", "value"),
    [
        ("pruned_matmul", "block", 2**62),
        ("component_index", "tile_w", 2**63 - 1),
        ("bounded_network", "widest", 2**62),
        ("masked_matmul", "a_rows", 2**63 - 1),
        ("masked_conv", "dilation_h", 2**61),
        ("reach_index", "kernel_h", 2**31),
    ],
)
def test_the_error_names_the_attribute(handler, attribute, value):
    code = (
        f"import sys; sys.path.insert(0, {str(RUN.parents[2])!r})\n"
        "import numpy as np\n"
        "from ffi.hostile import run, draw\n"
        f"call = draw.draw(draw.HANDLERS[{handler!r}], np.random.default_rng(0))\n"
        f"call.attributes[{attribute!r}] = np.int64({value})\n"
        "rng = np.random.default_rng(0)\n"
        "operands = [draw.fill(call, *operand, rng) for operand in call.operands]\n"
        f"run.make = lambda case: (call, {attribute!r}, operands)\n"
        "print(run.run(0)['error'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert f"{handler}: {attribute} is {value}, not in" in done.stdout, done
