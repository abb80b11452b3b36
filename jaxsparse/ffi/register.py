"""The only place that registers handlers: which native modules loaded, and why one did not.

Registration only queues a handler until the backend starts, so importing this touches no backend
and needs no GPU. A handler built against a newer FFI than the runtime's would keep a backend from
starting: that is refused here.
"""

import functools
import importlib
import json
import re
from importlib import resources
from pathlib import Path
from types import ModuleType

import jax
import jaxlib

PLATFORMS = {"cpu": "cpu", "cuda": "CUDA"}
MODULES = {"cpu": "jaxsparse._cpu", "cuda": "jaxsparse._cuda"}


def runtime_ffi_version() -> tuple[int, int]:
    """The (major, minor) version of the FFI that the installed jaxlib speaks."""
    header = Path(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h").read_text()
    found = {k: int(v) for k, v in re.findall(r"#define XLA_FFI_API_(M\w+) (\d+)", header)}
    return found["MAJOR"], found["MINOR"]


def build_info() -> dict[str, str]:
    """What the build decided about CUDA, and why."""
    folder = resources.files("jaxsparse")
    file = folder / "build_info.json"
    if file.is_file():
        return json.loads(file.read_text())
    why = f"{folder} holds sources, not a build: start Python in another folder, or install it"
    return {"cuda": "OFF", "why": why}


@functools.cache
def module(name: str) -> tuple[ModuleType | None, str]:
    """The native module of implementation `name` ("cpu", "cuda"), or None and the reason.

    Raises:
        ValueError: when JAXSPARSE_CPU_ISA names an instruction set that this machine lacks.
    """
    try:
        found = importlib.import_module(MODULES[name])
    except ModuleNotFoundError as error:
        if error.name != MODULES[name]:
            raise
        return None, f"this build has no {name} module ({build_info()['why']})"
    except ImportError as error:
        return None, f"the {name} module does not load: {error}"
    if name == "cpu":
        found.instruction_set()  # checks the environment
    return found, ""


def native(name: str) -> ModuleType:
    """The native module of an implementation that was planned, so it is there."""
    found, why = module(name)
    if found is None:
        raise ValueError(f"{name}: {why}")
    return found


def check_version(built: tuple[int, int], runtime: tuple[int, int]) -> None:
    """Refuse a runtime older than the FFI that the handlers were built against.

    Raises:
        ImportError: naming both versions and what to install.
    """
    if built[0] != runtime[0] or built[1] > runtime[1]:
        raise ImportError(
            f"jaxsparse was built for XLA FFI {built[0]}.{built[1]}, and the installed jaxlib "
            f"{jaxlib.__version__} speaks {runtime[0]}.{runtime[1]}. "
            "Install a newer one: pip install -U 'jax>=0.10.2' 'jaxlib>=0.10.2'."
        )


def register() -> tuple[str, ...]:
    """Register every handler that was built; returns the target names."""
    targets: set[str] = set()
    for name, platform in PLATFORMS.items():
        built, _ = module(name)
        if built is None:
            continue
        check_version(built.ffi_api_version, runtime_ffi_version())
        for target, handler in built.registrations().items():
            jax.ffi.register_ffi_target(target, handler, platform=platform, api_version=1)
            targets.add(target)
    return tuple(sorted(targets))


TARGETS = register()

#: Pass to `jax.export.export(..., disabled_checks=...)`: every custom call that an op may contain.
DISABLE_JAX_EXPORT_CHECKS = [
    jax.export.DisabledSafetyCheck.custom_call(target) for target in TARGETS
]
