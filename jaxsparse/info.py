"""`python -m jaxsparse.info`: what is installed, what was built, and what each op would run here.

One screen; `--json` has everything. What collects the facts is the standard library, and every fact
is found on its own: one that cannot be had says why, and the others are still printed. Without a
working rich they are printed as plain lines. A runtime too old for the handlers refuses at
`import jaxsparse`, with a sentence that says what to install; then there is nothing else to report,
and the sentence is what this command prints.
"""

import argparse
import importlib
import importlib.metadata
import inspect
import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxsparse.core.device import cores

__all__ = ["collect", "main"]

DISTRIBUTIONS = ("jaxsparse", "jax", "jaxlib", "jax-cuda13-plugin", "flax", "numpy")
#: How a build without CUDA kernels becomes one that has them.
GET_CUDA = "to build them: JAXSPARSE_CUDA=ON pip install ."


def collect() -> dict[str, Any]:
    """Every fact, as JSON types. Starts JAX's backends.

    A fact that cannot be had is {"error": reason}.
    """
    facts: dict[str, Callable[[], Any]] = {
        "versions": _versions,
        "build": _build,
        "ffi": _ffi,
        "modules": _modules,
        "cpu": _cpu,
        "devices": _devices,
        "ops": _ops,
    }
    return {name: _attempt(fact) for name, fact in facts.items()}


def _attempt(fact: Callable[[], Any]) -> Any:
    try:
        return fact()
    except Exception as error:  # whatever is broken here is itself what the user wants to know
        return {"error": f"{type(error).__name__}: {error}"}


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in DISTRIBUTIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    if found["jaxsparse"] == "not installed":
        found["jaxsparse"] = importlib.import_module("jaxsparse.version").__version__
    return found


def _build() -> dict[str, str]:
    found = importlib.import_module("jaxsparse.ffi.register").build_info()
    return found if found["cuda"] == "ON" else {**found, "get": GET_CUDA}


def _ffi() -> dict[str, str]:
    register = importlib.import_module("jaxsparse.ffi.register")
    found = {"runtime": "{}.{}".format(*register.runtime_ffi_version())}
    for name in register.MODULES:
        module, why = register.module(name)
        found[name] = why if module is None else "{}.{}".format(*module.ffi_api_version)
    return found


def _modules() -> dict[str, Any]:
    """What each native module says of itself."""
    register = importlib.import_module("jaxsparse.ffi.register")
    found: dict[str, Any] = {}
    for name in register.MODULES:
        module, why = register.module(name)
        if module is None:
            found[name] = {"error": why}
            continue
        found[name] = {
            "targets": sorted(module.registrations()),
            "architectures": getattr(module, "architectures", platform.machine()),
            "file": module.__file__,
        }
    return found


def _cpu() -> dict[str, Any]:
    provenance = importlib.import_module("jaxsparse.bench.report.provenance")
    module, why = importlib.import_module("jaxsparse.ffi.register").module("cpu")
    return {
        "machine": platform.machine(),
        "model": provenance.cpu_model(),
        "cores": cores(),
        "kernels": f"kernels for {module.instruction_set()}" if module else f"no kernels: {why}",
        "instruction_set": module.instruction_set() if module else "unknown",
    }


def _devices() -> dict[str, Any]:
    jax = importlib.import_module("jax")
    found: dict[str, Any] = {"default": jax.default_backend()}
    for backend in ("cpu", "cuda"):
        found[backend] = _attempt(lambda backend=backend: list(map(_kind, jax.devices(backend))))
    found["nvidia_driver"] = Path("/proc/driver/nvidia/version").exists()
    return found


def _kind(device: Any) -> str:
    """A device's name, a GPU's with its architecture."""
    capability = getattr(device, "compute_capability", None)
    number = str(capability or "").replace(".", "")
    return f"{device.device_kind} (sm_{number})" if number else device.device_kind


def _ops() -> dict[str, Any]:
    """For each op that has kernels: what it runs on this machine, why not the others, and which
    variants of its own it chooses among.
    """
    package = importlib.import_module("jaxsparse")
    has_kernels = importlib.import_module("jaxsparse.ffi.platform").has_kernels
    settings = {package.config, package.explain}
    found = {name: getattr(package, name) for name in package.__all__}
    takers = {n for n, f in found.items() if _takes_implementation(f) and f not in settings}
    ops = [name for name in takers if has_kernels(name)]
    return {name: _attempt(lambda name=name: _op(name)) for name in sorted(ops)}


def _takes_implementation(value: Any) -> bool:
    return inspect.isfunction(value) and "implementation" in inspect.signature(value).parameters


def _op(name: str) -> dict[str, Any]:
    chosen = importlib.import_module("jaxsparse.ffi.platform")
    variants = importlib.import_module("jaxsparse.select.variants")
    jax = importlib.import_module("jax")
    backend = {"gpu": "cuda"}.get(jax.default_backend(), jax.default_backend())
    offered = chosen.offered_by(name)
    plan = chosen.plan(name, None, offered)
    takes = plan.get(backend, plan.get("other", "nothing"))
    against = {}
    for other in chosen.NAMES:
        if other == takes:
            continue
        why = chosen.reason_against(other, offered, device=True)
        against[other] = why or f"{takes} is preferred on {backend}"
    listed = variants.variants(name) if name in variants.OPS else []
    names = [variant.name for variant in listed if variant.platform == takes]
    return {"takes": takes, "variants": names, "not": against}


def _plain(value: Any, depth: int = 0) -> list[str]:
    """The facts as indented lines."""
    lines = []
    for name, part in value.items():
        if isinstance(part, dict):
            lines += ["  " * depth + f"{name}:", *_plain(part, depth + 1)]
        else:
            text = ", ".join(map(str, part)) if isinstance(part, list) else str(part)
            lines.append("  " * depth + f"{name}: {text}")
    return lines


def _show(facts: dict[str, Any]) -> None:
    """Print the screen; where rich is broken, that and the facts as plain lines."""
    try:
        importlib.import_module("jaxsparse.info_screen").show(facts)
    except ImportError as error:
        print("\n".join([f"rich: {type(error).__name__}: {error}", *_plain(facts)]))


def main(arguments: list[str] | None = None) -> int:
    """Print the screen; `--json` prints every fact as JSON. Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="jaxsparse.info", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--json", action="store_true", help="print every fact as JSON")
    as_json = parser.parse_args(arguments).json
    facts = collect()
    if as_json:
        print(json.dumps(facts, indent=2))
    else:
        _show(facts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
