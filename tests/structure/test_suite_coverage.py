"""Every public op passes the op suite, and what the suite checks is checked there alone."""

import ast
import inspect
import types
from pathlib import Path

import pytest
from ops.op_report import checks, skips, suites

import jaxsparse as js
from jaxsparse.ops.grouped_gated.api import grouped_gated
from jaxsparse.ops.top_experts.api import top_experts

TESTS = Path(__file__).parents[1]
NOT_PUBLIC = {grouped_gated, top_experts}  # ops all the same: MoE runs on them


def takes_implementation(value):
    return "implementation" in inspect.signature(value).parameters


def is_op(value):
    """Whether a function takes `implementation=`, or is an op that XLA's operations do."""
    return takes_implementation(value) or value.__module__.startswith("jaxsparse.ops.")


def public_functions():
    """name -> each function of the API that is an op, and each class method that takes
    `implementation=`. The layers of `js.nn` are classes around these functions.
    """
    found, seen, modules = {}, set(), [("js", js)]
    while modules:
        path, module = modules.pop()
        for name in getattr(module, "__all__", None) or dir(module):
            value = getattr(module, name)
            if isinstance(value, types.ModuleType):
                if value.__name__.startswith("jaxsparse.") and value not in seen:
                    seen.add(value)
                    modules.append((f"{path}.{name}", value))
            elif inspect.isfunction(value) and is_op(value):
                if not name.startswith("_") and value is not js.config:
                    found[f"{path}.{name}"] = value
            elif inspect.isclass(value) and value.__module__.startswith("jaxsparse."):
                for method in vars(value):
                    made = getattr(value, method)
                    if inspect.ismethod(made) and takes_implementation(made):
                        found[f"{path}.{name}.{method}"] = made
    return found


def test_every_public_op_has_a_suite():
    served = {function for suite in suites() for function in suite.spec.serves}
    missing = sorted(name for name, value in public_functions().items() if value not in served)
    assert not missing, f"no spec in tests/ops/<op>/test_suite.py serves {missing}"
    assert served >= NOT_PUBLIC


def test_what_is_public_was_found():
    found = set(public_functions())
    some = {"js.masked_conv", "js.tile_index", "js.bounded.network", "js.TileIndex.from_words"}
    some |= {"js.dispatch", "js.combine", "js.ring_attention", "js.pack_tokens", "js.unpack_tokens"}
    assert found >= some


def test_every_check_applies_somewhere():
    ops = {suite.spec.name for suite in suites()}
    report = skips()
    for check in checks():
        assert len(report[check]) < len(ops), f"{check} applies to no op"


def test_every_skip_says_why():
    for suite in suites():
        spec = suite.spec
        for check, reason in spec.inapplicable.items():
            assert getattr(suite, f"test_{check}") is None
            assert len(reason.split()) > 2, f"{spec.name}, {check}: {reason!r}"
        assert len(spec.inapplicable) <= len(checks()) / 2, f"{spec.name} skips most of the suite"


def test_a_name_is_one_op():
    names = [suite.spec.name for suite in suites()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", ["vmap", "shard_map"])
def test_transforms_are_tested_in_the_suite(name):
    """A test of these elsewhere has a comment above it, "Not in the op suite: ", and the reason."""
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text()
        lines = text.split("\n")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and node.name.startswith(f"test_{name}"):
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                where = f"{path.relative_to(TESTS)}:{node.lineno} {node.name}"
                assert lines[first - 2].startswith("# Not in the op suite: "), where
