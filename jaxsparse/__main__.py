"""The command line: `jaxsparse info | bench | tune`."""

import os
from typing import Annotated

import typer

from jaxsparse import info as info_facts
from jaxsparse.bench.command import bench
from jaxsparse.tune.command import tune

app = typer.Typer(
    name="jaxsparse",
    help="The sparse backend for JAX.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(bench)
app.command()(tune)


@app.command()
def info(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """What is installed, what was built, and what each op would run here."""
    raise typer.Exit(info_facts.main(["--json"] if as_json else []))


def main() -> None:
    """The entry point. Leaves room on a GPU for what runs beside JAX."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    app()


if __name__ == "__main__":
    main()
