"""A module that runs once another one is imported."""

import importlib
import sys

import pytest

from jaxsparse.core.late import when_imported


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """Two modules, `late_first` and `late_then`, which notes what it finds of the first."""
    (tmp_path / "late_first.py").write_text("value = 1\n")
    (tmp_path / "late_then.py").write_text("import late_first\nseen = late_first.value\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = list(sys.meta_path)
    yield
    for name in ("late_first", "late_then"):
        sys.modules.pop(name, None)
    assert sys.meta_path == before


@pytest.mark.usefixtures("modules")
def test_it_runs_when_the_other_is_imported():
    when_imported("late_first", "late_then")
    assert "late_then" not in sys.modules
    importlib.import_module("late_first")
    assert sys.modules["late_then"].seen == 1


@pytest.mark.usefixtures("modules")
def test_it_runs_now_where_the_other_is_there():
    importlib.import_module("late_first")
    when_imported("late_first", "late_then")
    assert sys.modules["late_then"].seen == 1


def test_a_package_that_is_not_installed_stays_so():
    when_imported("late_absent", "late_then")
    with pytest.raises(ModuleNotFoundError, match="late_absent"):
        importlib.import_module("late_absent")
    assert "late_then" not in sys.modules
