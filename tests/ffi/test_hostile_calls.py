"""A call that somebody made by hand is refused or runs: no crash, no hang, whatever it says.

`JAXSPARSE_HOSTILE_CALLS` is how many calls of every handler are tried (40 by default, 16 on a GPU).
The checks of the CUDA handlers run on a machine without a GPU too, alone.
"""

import json
import os
import queue
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import jax
import numpy as np
import pytest
from ffi.hostile import decoders
from ffi.hostile.draw import draw, fill, handlers
from ffi.hostile.run import is_drawn, make, run

from jaxsparse.ffi.register import module

#: Of a process that compiles a thousand calls: one device, and no compiler threads of XLA's.
FLAGS = "--xla_cpu_parallel_codegen_split_count=1"
SILENCE = 240.0  # seconds until a call counts as hung: imports and compilation on a busy machine
RUN = Path(__file__).parent / "hostile/run.py"
COMPILER = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
#: What a contract says of a call that breaks it.
BROKEN = r"it must hold that|not in \[|entries along axis|must be"
#: A kernel that read or wrote what it must not: the device is lost.
FAULT = r"illegal|misaligned|unspecified launch|CUDA_ERROR"

cpu_module = pytest.mark.skipif(module("cpu")[0] is None, reason="no CPU module")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    """The checks of the CUDA handlers."""
    return decoders.build(tmp_path_factory.mktemp("checks"), str(COMPILER))


def calls(platform, default):
    each = int(os.environ.get("JAXSPARSE_HOSTILE_CALLS") or default)
    return each * len(handlers(platform))


def results(first, last, platform, backend, *library):
    """(case, result) for each case that ended; stops where the process died or hung."""
    env = os.environ | {"JAX_PLATFORMS": backend, "XLA_FLAGS": FLAGS}
    command = [
        sys.executable,
        "-X",
        "faulthandler",
        str(RUN),
        str(last),
        str(first),
        platform,
        *map(str, library),
    ]
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


def name_of(case, platform):
    call, change, _ = make(case, platform)
    return f"case {case}: {call.handler}: {change or 'as drawn'}: {call}"


def endings_of(count, platform, backend, *library):
    """How each case ended; fails where one killed the process, lost the device or never ended."""
    endings, deaths, begun, first = {}, [], 0, 0
    while first < count:
        for found in results(first, min(first + 2000, count), platform, backend, *library):
            if "begins" in found:
                begun = found["begins"]
            elif "died" in found:
                deaths.append(f"{name_of(begun, platform)}\n{found}")
            else:
                endings[found["case"]] = found
        first = begun + 1
        assert len(deaths) < 5, "\n\n".join(deaths)
    assert not deaths, "\n\n".join(deaths)
    faults = [c for c, e in endings.items() if re.search(FAULT, e["error"])]
    assert not faults, f"{name_of(faults[0], platform)}: {endings[faults[0]]['error']}"
    slow = [f"{name_of(c, platform)}: {e}" for c, e in endings.items() if e["seconds"] > 1]
    assert not slow, "\n\n".join(slow)
    spoilt = [e for c, e in endings.items() if not is_drawn(c, platform)]
    assert sum(bool(e["error"]) for e in spoilt) > len(spoilt) / 3
    return endings


def refused(endings, platform):
    """(name, error) of the calls that were left as drawn, and refused."""
    return [
        (name_of(c, platform), e["error"])
        for c, e in endings.items()
        if is_drawn(c, platform) and e["error"]
    ]


@cpu_module
def test_no_call_by_hand_kills_or_hangs():
    endings = endings_of(calls("cpu", 40), "cpu", "cpu")
    wrong = [why for why in refused(endings, "cpu") if "table or expand points" not in why[1]]
    assert not wrong, wrong


@needs_compiler
@pytest.mark.skipif(
    jax.default_backend() == "gpu", reason="the CUDA handlers themselves run on this machine's GPU"
)
def test_the_checks_of_cuda_refuse_what_breaks_the_contract_alone(library):
    endings = endings_of(calls("cuda", 40), "cuda", "cpu", library)
    assert not refused(endings, "cuda")


@pytest.mark.gpu
@pytest.mark.skipif(module("cuda")[0] is None, reason="no CUDA module")
def test_no_call_by_hand_loses_the_gpu():
    endings = endings_of(calls("cuda", 16), "cuda", "cuda")
    wrong = [why for why in refused(endings, "cuda") if re.search(BROKEN, why[1])]
    assert not wrong, wrong
    ran = sum(is_drawn(c, "cuda") and not e["error"] for c, e in endings.items())
    assert ran > len(handlers("cuda"))  # two calls of each are left as drawn


@pytest.mark.parametrize(
    "backend", [pytest.param("cpu", marks=cpu_module), pytest.param("cuda", marks=pytest.mark.gpu)]
)
def test_no_table_of_a_network_leads_out_of_bounds(backend):
    """CUDA cannot look at a table before it launches: the kernels cut what points outside."""
    done = subprocess.run(
        [sys.executable, str(RUN.with_name("tables.py")), "300"],
        env=os.environ | {"JAX_PLATFORMS": backend},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    ran, *errors = done.stdout.splitlines()
    if backend == "cuda":
        assert (int(ran), errors) == (4 * 300, [])
    else:
        assert all("table or expand points outside" in e for e in errors)


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
@cpu_module
def test_the_error_names_the_attribute(handler, attribute, value):
    code = (
        f"import sys; sys.path.insert(0, {str(RUN.parents[2])!r})\n"
        "import numpy as np\n"
        "from ffi.hostile import run, draw\n"
        "rng = np.random.default_rng(0)\n"
        f"call = draw.draw(draw.handlers('cpu')[{handler!r}], rng)\n"
        f"call.attributes[{attribute!r}] = np.int64({value})\n"
        "operands = [draw.fill(call, *operand, rng) for operand in call.operands]\n"
        "print(run.run(call, operands)[0])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert f"{handler}: {attribute} is {value}, not in" in done.stdout, done


@pytest.fixture(scope="session")
def registered(library):
    """The checks of the CUDA handlers as targets of this process, which may have each once."""
    decoders.register(library)


@needs_compiler
@pytest.mark.parametrize("name", handlers("cuda"))
@pytest.mark.usefixtures("registered")
def test_the_checks_of_cuda_name_the_attribute(name):
    rng = np.random.default_rng(0)
    for attribute in handlers("cuda")[name].attributes:
        for value in {attribute.least - 1, attribute.most + 1}:
            if attribute.type != "i64" or not -(2**63) <= value < 2**63:
                continue
            call = draw(handlers("cuda")[name], rng)
            call.attributes[attribute.name] = np.int64(value)
            operands = [fill(call, *operand, rng) for operand in call.operands]
            with jax.default_device(jax.devices("cpu")[0]):
                error, _ = run(call, operands, decoders.PREFIX)
            assert f"{name}: {attribute.name} is {value}, not in [" in error
