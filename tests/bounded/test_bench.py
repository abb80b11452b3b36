"""The benchmark of the challenge, small."""

import json

import pytest
from typer.testing import CliRunner

from jaxsparse.bench import challenge


@pytest.fixture
def command():
    import typer

    app = typer.Typer()
    app.command()(challenge.main)
    return lambda *args: CliRunner().invoke(app, [str(a) for a in args])


def test_small_challenge(command, tmp_path, monkeypatch):
    monkeypatch.delenv("JAXSPARSE_DATA", raising=False)
    ways = [
        a for w in ("persistent", "unfolded", "column+proofs", "converged") for a in ("--way", w)
    ]
    files = ["--json", tmp_path / "c.json", "--plot", tmp_path / "c.png"]
    shape = ["--neurons", 1024, "--depth", 33, "--images", 200, "--samples", 1]
    result = command(*shape, *ways, *files)
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "c.json").read_text())
    assert all(row["correct"] for row in found["rows"])
    assert len(found["rows"]) == 4
    assert found["saved"][-1]["writes"] > found["saved"][0]["writes"]
    assert (tmp_path / "c.png").stat().st_size > 1000


def test_unknown_ways_are_refused(command):
    assert command("--way", "diagonal").exit_code == 2
    assert command("--neurons", 77).exit_code == 2
    assert command("--depth", 20, "--way", "converged").exit_code == 2
