from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def examples(monkeypatch):
    """The folder of the examples, importable as when one of them is run."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return EXAMPLES
