"""The command line: `jaxsparse info | bench | papers | tune | calibrate`."""

import os
from typing import Annotated

import typer

from jaxsparse import info as info_facts
from jaxsparse.bench.command import app as bench
from jaxsparse.bench.papers.command import papers
from jaxsparse.tune.calibrate_command import calibrate
from jaxsparse.tune.command import tune
from jaxsparse.version import __version__

app = typer.Typer(
    name="jaxsparse",
    help="The sparse backend for JAX.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(bench, name="bench")
app.command()(papers)
app.command()(tune)
app.command()(calibrate)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"jaxsparse {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """The sparse backend for JAX."""


@app.command()
def info(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """What is installed, what was built, what runs here."""
    raise typer.Exit(info_facts.main(["--json"] if as_json else []))


def main() -> None:
    """The entry point. Leaves room on a GPU for what runs beside JAX."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    app()


if __name__ == "__main__":
    main()
