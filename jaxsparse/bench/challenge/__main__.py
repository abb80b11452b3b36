"""`python -m jaxsparse.bench.challenge`."""

import typer

from jaxsparse.bench.challenge.command import main

typer.run(main)
