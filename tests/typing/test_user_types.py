"""The types of everything public, as a user's checkers find them: `user.py` passes mypy and
pyright, both strict, and every marked line of `wrong.py` is refused.
"""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import jaxsparse as js

HERE, PACKAGE = Path(__file__).parent, Path(js.__file__).parents[1]
#: In a checkout a checker has to be told where the package is; an installed one it finds.
PATHS = [str(PACKAGE)] if (PACKAGE / "pyproject.toml").is_file() else []
WRONG = (HERE / "wrong.py").read_text().splitlines()
REFUSED = {n for n, line in enumerate(WRONG, 1) if line.endswith("# error")}
#: Functions of jax and flax whose own types pyright finds partially unknown.
THEIRS = {"asarray", "bind", "full", "init", "ones"}

pytestmark = pytest.mark.slow


def run(folder, *command, **environment):
    """A command in a folder that holds copies of both files."""
    for name in ("user.py", "wrong.py"):
        shutil.copy(HERE / name, folder)
    env = {**os.environ, **environment, "JAX_PLATFORMS": "cpu"}
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=env, capture_output=True, text=True
    )


def needs(tool):
    return pytest.mark.skipif(importlib.util.find_spec(tool) is None, reason=f"no {tool} here")


def test_runs(tmp_path):
    paths = os.pathsep.join([*PATHS, os.environ.get("PYTHONPATH", "")])
    done = run(tmp_path, "user.py", PYTHONPATH=paths)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("done\n")


@needs("mypy")
def test_mypy(tmp_path):
    (tmp_path / "mypy.ini").write_text(
        "[mypy]\nstrict = true\n[mypy-jaxsparse.*]\nfollow_imports = silent\n"
    )
    done = run(tmp_path, "-m", "mypy", "user.py", "wrong.py", MYPYPATH=os.pathsep.join(PATHS))
    found = re.findall(r"^(\w+\.py):(\d+): error: (.*)$", done.stdout, re.MULTILINE)
    assert found, done.stdout + done.stderr
    check([(file, int(line), text) for file, line, text in found])


@needs("pyright")
def test_pyright(tmp_path):
    settings = {
        "include": ["user.py", "wrong.py"],
        "extraPaths": PATHS,
        "typeCheckingMode": "strict",
        "reportMissingTypeStubs": False,
        "reportMissingModuleSource": False,
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    options = ("--pythonpath", sys.executable, "--outputjson")
    done = run(tmp_path, "-m", "pyright", "-p", "pyrightconfig.json", *options)
    told = json.loads(done.stdout[done.stdout.index("{") :])
    assert told["summary"]["filesAnalyzed"] == 2
    found = [
        (Path(each["file"]).name, each["range"]["start"]["line"] + 1, each["message"])
        for each in told["generalDiagnostics"]
        if each["severity"] == "error" and not theirs(each)
    ]
    check(found)


def theirs(diagnostic):
    """Whether pyright only says that a function of jax or flax is partially unknown."""
    named = re.match(r'Type of "(\w+)" is partially unknown', diagnostic["message"])
    unknown = diagnostic.get("rule") == "reportUnknownMemberType"
    return unknown and named is not None and named[1] in THEIRS


def check(found):
    """No error in what is right, and one on every line that is wrong."""
    assert [each for each in found if each[0] == "user.py"] == []
    lines = {line for file, line, _ in found if file == "wrong.py"}
    assert lines == REFUSED, sorted(lines ^ REFUSED)
