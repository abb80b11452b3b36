"""The benchmark of the challenge, small."""

import json

import pytest
from typer.testing import CliRunner

from jaxsparse.bench.challenge import command as challenge


@pytest.fixture
def command(monkeypatch):
    import typer

    monkeypatch.setenv("COLUMNS", "300")  # long paths stay in a line

    app = typer.Typer()
    app.command()(challenge.main)
    return lambda *args: CliRunner().invoke(app, [str(a) for a in args])


def test_small_challenge(command, tmp_path, monkeypatch):
    monkeypatch.delenv("JAXSPARSE_DATA", raising=False)
    ways = [
        a for w in ("persistent", "unfolded", "column+proofs", "converged") for a in ("--way", w)
    ]
    names = {"--json": "c.json", "--plot": "c.png", "--csv": "c.csv", "--markdown": "c.md"}
    files = [part for flag, name in names.items() for part in (flag, tmp_path / name)]
    shape = ["--neurons", 1024, "--depth", 33, "--images", 200, "--samples", 1]
    result = command(*shape, *ways, *files, "--overhead")
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "c.json").read_text())
    assert all(row["correct"] for row in found["rows"])
    assert len(found["rows"]) == 4
    assert found["saved"][-1]["writes"] > found["saved"][0]["writes"]
    assert [o["dataflow"] for o in found["overheads"]] == ["row", "slab", "column", "converged"]
    assert (tmp_path / "c.csv").read_text().count("\n") == 5
    assert "| 1024-33 | unfolded |" in (tmp_path / "c.md").read_text()
    assert (tmp_path / "c.png").stat().st_size > 1000
    assert "## Reads / writes that the recorder alone saves" in (tmp_path / "c.md").read_text()
    joined = command("--join", tmp_path / "c.json", "--markdown", tmp_path / "joined.md")
    assert joined.exit_code == 0, joined.output
    assert (tmp_path / "joined.md").read_text() == (tmp_path / "c.md").read_text()


def test_only_like_runs_join(command, tmp_path, monkeypatch):
    monkeypatch.delenv("JAXSPARSE_DATA", raising=False)
    shape = ["--neurons", 1024, "--depth", 4, "--way", "persistent", "--samples", 1]
    files = []
    for images in (10, 20):
        files += ["--join", tmp_path / f"{images}.json"]
        result = command(*shape, "--images", images, "--json", files[-1])
        assert result.exit_code == 0, result.output
    assert command(*files).exit_code == 2


def test_what_would_take_too_long_is_left_out(command, tmp_path, monkeypatch):
    monkeypatch.delenv("JAXSPARSE_DATA", raising=False)
    shape = ["--neurons", 1024, "--depth", 8, "--depth", 2000, "--images", 20, "--samples", 1]
    result = command(
        *shape, "--way", "row", "--way", "converged", "--largest", 1, "--csv", tmp_path / "c.csv"
    )
    assert result.exit_code == 0, result.output
    notes = [line.rpartition(",")[2] for line in (tmp_path / "c.csv").read_text().splitlines()]
    assert notes == ["note", "", "> 30 layers only", "past --largest", "past --largest"]


def test_unknown_ways_are_refused(command):
    assert command("--way", "diagonal").exit_code == 2
    assert command("--neurons", 77).exit_code == 2
    assert command("--depth", 0).exit_code == 2


def test_files_that_hold_no_run_are_named(command, tmp_path):
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "none.json").write_text("nothing")
    for name in ("list.json", "none.json", "absent.json"):
        result = command("--join", tmp_path / name)
        assert result.exit_code == 2
        assert name in result.output


def test_layers_is_another_name_of_depth(command, tmp_path, monkeypatch):
    monkeypatch.delenv("JAXSPARSE_DATA", raising=False)
    shape = ["--neurons", 1024, "--layers", 32, "--images", 20, "--samples", 1]
    ways = ["--way", "converged", "--way", "converged+recorder"]
    result = command(*shape, *ways, "--csv", tmp_path / "c.csv")
    assert result.exit_code == 0, result.output
    rows = (tmp_path / "c.csv").read_text().splitlines()[1:]
    assert [row.split(",")[:3] for row in rows] == [
        ["1024", "32", "converged"], ["1024", "32", "converged+recorder"]
    ]  # fmt: skip


def test_a_file_that_cannot_be_written_is_found_first(command, tmp_path):
    (tmp_path / "folder").mkdir()
    result = command("--quick", "--json", tmp_path / "folder")
    assert result.exit_code == 2
    assert "cannot" in result.output
