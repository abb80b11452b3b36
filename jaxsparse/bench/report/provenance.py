"""Where and on what a figure was measured: recorded in every file that holds figures."""

import datetime
import importlib.metadata
import platform
import re
import shlex
import subprocess
import sys
from pathlib import Path

import jax
import msgspec

from jaxsparse.core.device import cores
from jaxsparse.version import __version__

PACKAGE = Path(__file__).resolve().parents[2]


class Provenance(msgspec.Struct, frozen=True):
    """What a measurement depends on."""

    date: str
    commit: str
    device: str
    python: str
    versions: dict[str, str]
    command: str = ""

    def lines(self) -> list[str]:
        """The same, a fact a line."""
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        facts = {
            "Date": self.date,
            "Commit": self.commit or "not in a git checkout",
            "Device": self.device,
            "Versions": f"{versions}, Python {self.python}",
            "Command": f"`{self.command}`" if self.command else "",
        }
        return [f"{name}: {value}" for name, value in facts.items() if value]


def provenance(command: str = "") -> Provenance:
    """That of this process, now. Starts JAX's backend."""
    versions = {"jaxsparse": __version__, "jax": jax.__version__, "jaxlib": jax.lib.__version__}
    for name in ("torch", "nvidia-cudnn-cu13"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    now = datetime.datetime.now(datetime.UTC)
    return Provenance(
        date=now.strftime("%Y-%m-%d %H:%M UTC"),
        commit=commit(),
        device=device(),
        python=platform.python_version(),
        versions=versions,
        command=command,
    )


def commit() -> str:
    """The commit of the checkout that holds the working directory, with "+changes" if files other
    than those that runs write (benchmarks/results) were edited; "" outside of a checkout.
    """

    def git(*args: str) -> str:
        done = subprocess.run(
            ("git", *args), capture_output=True, text=True, check=True, timeout=10
        )
        return done.stdout.strip()

    try:
        top = git("rev-parse", "--show-toplevel")
        if not Path(top, "jaxsparse", "version.py").is_file():
            return ""
        edited = git("-C", top, "status", "-s", "--", ".", ":!benchmarks/results")
        return git("rev-parse", "--short=12", "HEAD") + ("+changes" if edited else "")
    except (OSError, subprocess.SubprocessError):
        return ""


def device() -> str:
    """The device that JAX runs on by default, a CPU with its model and the cores that this process
    may use.
    """
    first = jax.devices()[0]
    if first.platform != "cpu":
        return first.device_kind
    return f"{cpu_model()}, {cores()} cores"


def cpu_model() -> str:
    """The CPU's name, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def device_slug(name: str) -> str:
    """A device's name as part of a file's name: "AMD EPYC, 2 cores" is "amd_epyc_2_cores"."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower().replace("(r)", "")).strip("_")


def command_line() -> str:
    """How this process was started: `jaxsparse ...`, `python -m <module> ...`, or `python <file>.py
    ...`, the file relative to the working directory if it is below that.
    """
    started = Path(sys.argv[0]).resolve()
    first = ["jaxsparse"]
    if started.name == "__main__.py" and started.is_relative_to(PACKAGE):
        package = started.parent.relative_to(PACKAGE.parent).parts
        first = first if len(package) == 1 else ["python", "-m", ".".join(package)]
    elif started.suffix == ".py":
        here = Path.cwd()
        below = started.is_relative_to(here)
        first = ["python", str(started.relative_to(here)) if below else started.name]
    return shlex.join([*first, *sys.argv[1:]])
