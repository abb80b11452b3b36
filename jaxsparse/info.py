"""`python -m jaxsparse.info`: what is installed, what was built, and what each op would run here.
Standard library only.

Every fact is found on its own: one that cannot be had says why, and the others are still printed. A
runtime too old for the handlers refuses at `import jaxsparse`, with a sentence that says what to
install; then there is nothing else to report, and the sentence is what this command prints.
"""

import argparse
import importlib
import importlib.metadata
import inspect
import json
import platform
import sys
from collections.abc import Callable
from typing import Any

DISTRIBUTIONS = ("jaxsparse", "jax", "jaxlib", "jax-cuda13-plugin", "flax", "numpy")


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
    return importlib.import_module("jaxsparse.ffi.register").build_info()


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


def _cpu() -> dict[str, str]:
    module, why = importlib.import_module("jaxsparse.ffi.register").module("cpu")
    return {
        "machine": platform.machine(),
        "instruction_set": module.instruction_set() if module else f"unknown: {why}",
    }


def _devices() -> dict[str, Any]:
    jax = importlib.import_module("jax")
    found: dict[str, Any] = {"default": jax.default_backend()}
    for backend in ("cpu", "cuda"):
        found[backend] = _attempt(
            lambda backend=backend: [d.device_kind for d in jax.devices(backend)]
        )
    return found


def _ops() -> dict[str, Any]:
    """For each op: what it runs on this machine, why not the others, and how many variants it
    chooses among, where it has some of its own.
    """
    package = importlib.import_module("jaxsparse")
    ops = [n for n, f in vars(package).items() if _takes_implementation(f)]
    return {name: _attempt(lambda name=name: _op(name)) for name in sorted(ops)}


def _takes_implementation(value: Any) -> bool:
    return inspect.isfunction(value) and "implementation" in inspect.signature(value).parameters


def _op(name: str) -> dict[str, Any]:
    chosen = importlib.import_module("jaxsparse.ffi.platform")
    variants = importlib.import_module("jaxsparse.select.variants")
    jax = importlib.import_module("jax")
    backend = {"gpu": "cuda"}.get(jax.default_backend(), jax.default_backend())
    offered = _offered(name, chosen.NAMES)
    plan = chosen.plan(name, None, offered)
    takes = plan.get(backend, plan.get("other", "nothing"))
    against = {}
    for other in chosen.NAMES:
        if other == takes:
            continue
        why = chosen.reason_against(other, offered, device=True)
        against[other] = why or f"{takes} comes first on {backend}"
    count = len(variants.table(name, takes))
    found = {"takes": takes, "variants": count} if count else {"takes": takes}
    return {**found, "not": against}


def _offered(name: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """The implementations that an op offers: all, where its module does not say."""
    for module in (f"jaxsparse.ops.{name}", f"jaxsparse.ops.{name}_run"):
        try:
            return getattr(importlib.import_module(module), "OFFERED", None) or names
        except ModuleNotFoundError:
            continue
    return names


def render(facts: dict[str, Any]) -> str:
    """The facts as indented lines."""
    return "\n".join(_lines(facts, 0))


def _lines(value: Any, depth: int) -> list[str]:
    lines = []
    for name, part in value.items():
        if isinstance(part, dict) and set(part) != {"error"}:
            lines += ["  " * depth + f"{name}:", *_lines(part, depth + 1)]
            continue
        if isinstance(part, dict):
            part = part["error"]
        text = ", ".join(map(str, part)) if isinstance(part, list) else str(part)
        lines.append("  " * depth + f"{name}: {text}")
    return lines


def main(arguments: list[str] | None = None) -> int:
    """Print the facts; `--json` as JSON. Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="jaxsparse.info", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    as_json = parser.parse_args(arguments).json
    facts = collect()
    print(json.dumps(facts, indent=2) if as_json else render(facts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
