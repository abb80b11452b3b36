"""Which checks of the op suite apply to which op, and why the others do not."""

import importlib
from collections.abc import Iterator
from pathlib import Path

from ops.op_suite import OpSuite


def checks() -> list[str]:
    """The names of the suite's checks."""
    return [name.removeprefix("test_") for name in dir(OpSuite) if name.startswith("test_")]


def suites() -> Iterator[type[OpSuite]]:
    """Every subclass with a spec, of all tests/ops/<op>/test_suite.py."""
    for path in sorted(Path(__file__).parent.glob("*/test_suite.py")):
        module = importlib.import_module(f"ops.{path.parent.name}.test_suite")
        for found in vars(module).values():
            mine = isinstance(found, type) and found.__module__ == module.__name__
            if mine and issubclass(found, OpSuite) and hasattr(found, "spec"):
                yield found


def skips() -> dict[str, dict[str, str]]:
    """check -> spec's name -> why the check does not apply to it."""
    report: dict[str, dict[str, str]] = {check: {} for check in checks()}
    for suite in suites():
        for check, reason in suite.spec.inapplicable.items():
            report[check][suite.spec.name] = reason
    return report
