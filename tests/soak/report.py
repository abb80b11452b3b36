"""What a run found, as rows of a table."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that was measured.

    Attributes:
        what: in words.
        found: in words, with its unit.
        allowed: in words, with its unit; empty if there is no bound.
        good: whether it is within the bound.
    """

    what: str
    found: str
    allowed: str = ""
    good: bool = True


class Step(Protocol):
    """Advances the progress by `done`, and shows the text `seen`."""

    def __call__(self, done: int, seen: str = "") -> None: ...


@contextlib.contextmanager
def progress(what: str, total: int) -> Iterator[Step]:
    """A bar on a terminal, with the time that is left; elsewhere a line for each text `seen`."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[seen]}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        bar = bars.add_task(what, total=total, seen="")
        count = 0

        def step(done: int, seen: str = "") -> None:
            nonlocal count
            count += done
            bars.update(bar, advance=done, **({"seen": seen} if seen else {}))
            if seen and not console.is_terminal:
                console.print(f"{what}: {count} of {total}, {seen}", highlight=False)

        yield step


def shown(findings: list[Finding]) -> bool:
    """Print the table; whether all of them are good."""
    table = Table("what", "found", "allowed", "", title="Long runs")
    for finding in findings:
        mark = "" if not finding.allowed else "yes" if finding.good else "NO"
        table.add_row(finding.what, finding.found, finding.allowed, mark)
    Console().print(table)
    return all(finding.good for finding in findings)
