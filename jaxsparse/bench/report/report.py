"""What a benchmark found, and its files. Each file says where its figures come from."""

import csv
import io
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import msgspec

from jaxsparse.bench.report.crossover import crossover_text
from jaxsparse.bench.report.provenance import Provenance
from jaxsparse.bench.report.rows import Row, by_side, cell, device_cell, levels

#: A row: a struct with `op: str` and `correct: bool`.
R = TypeVar("R", bound=Any)

LEGEND = (
    "Microseconds a call (median wall time in a chain), ± half the distance of the quartiles, "
    "and how many times faster than XLA dense."
)


class BaseReport(msgspec.Struct, Generic[R], frozen=True):
    """The rows of a run and where they were measured; a kind of row has its own subclass."""

    provenance: Provenance
    rows: tuple[R, ...]

    @property
    def correct(self) -> bool:
        """Whether every output of every timed call was right."""
        return all(row.correct for row in self.rows)

    def to_json(self) -> bytes:
        """Indented JSON; `from_json` reads it."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"

    @classmethod
    def from_json(cls, text: bytes | str) -> Self:
        """Read what `to_json` wrote.

        Raises:
            ValueError: when `text` is not a report, naming the field.
        """
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.DecodeError as error:
            raise ValueError(f"not a report: {error}") from error

    def to_csv(self) -> str:
        """One line a row, the provenance in its last columns."""
        return csv_text(self.rows, self.provenance)

    def to_markdown(self) -> str:
        """A title, the provenance, LEGEND, then the tables."""
        facts = [f"- {line}" for line in self.provenance.lines()]
        head = [f"# {self.title()}", "", *facts, "", self.legend()]
        return "\n".join([*head, *self.tables()]) + "\n"

    def title(self) -> str:
        """The heading of the Markdown: the operation's name."""
        return self.rows[0].op if self.rows else "nothing"

    def legend(self) -> str:
        """What the figures of the tables are."""
        raise NotImplementedError

    def tables(self) -> Iterable[str]:
        """The lines of the tables, headings included."""
        raise NotImplementedError

    def write(self, path: str | Path, form: str) -> None:
        """Write it as "json", "csv" or "markdown".

        Raises:
            ValueError: for another form.
        """
        forms = {"json": self.to_json, "csv": self.to_csv, "markdown": self.to_markdown}
        if form not in forms:
            raise ValueError(f"form={form!r} is not one of {', '.join(forms)}")
        text = forms[form]()
        Path(path).write_bytes(text.encode() if isinstance(text, str) else text)


class Report(BaseReport[Row], frozen=True):
    """All rows of a run of `jaxsparse bench masked_conv`."""

    def groups(self) -> Iterator[tuple[tuple[str, str, str], list[Row]]]:
        """((case, mask, dtype), its rows), in the order of measurement."""
        for key, rows in itertools.groupby(self.rows, lambda row: (row.case, row.mask, row.dtype)):
            yield key, list(rows)

    def legend(self) -> str:
        """What the figures of the tables are."""
        return LEGEND

    def tables(self) -> Iterator[str]:
        """A table for each case, mask and dtype: sides down, densities across."""
        for (case, mask, dtype), rows in self.groups():
            yield from ("", f"## {case}, {dtype}, {mask}", "", _conditions(rows[0]), "")
            yield from _table(rows, cell, "faster below", crossover_text)
            if rows[0].device_us is not None:
                yield from ("", "On the device:", "", *_table(rows, device_cell))


def make_folders(*files: Path | None) -> None:
    """The folders of files that will be written: made, and the files opened, before measuring, so
    that no result is lost.

    Raises:
        ValueError: naming the file that cannot be written.
    """
    for file in files:
        try:
            if file is not None:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.open("a").close()
        except OSError as error:
            raise ValueError(f"{file} cannot be written: {error}") from error


def csv_text(rows: Sequence[msgspec.Struct], where: Provenance) -> str:
    """One line a row (structs of one type), the provenance in its last columns."""
    facts = {
        "date": where.date,
        "commit": where.commit,
        "device": where.device,
        "python": where.python,
        **where.versions,
    }
    out = io.StringIO()
    fields = rows[0].__struct_fields__ if rows else ()
    writer = csv.DictWriter(out, [*fields, *facts], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow(msgspec.structs.asdict(row) | facts)
    return out.getvalue()


def _table(
    rows: Sequence[Row],
    show: Callable[[Row], str],
    last_head: str | None = None,
    last: Callable[[Iterable[Row]], str] = lambda rows: "",
) -> list[str]:
    """A table's lines: sides down, densities across, and what `last` says of each side."""
    densities = levels(rows)
    more = [] if last_head is None else [last_head]
    heads = [f"{pixel:.3g} / {tile:.3g}" for pixel, tile in densities] + more
    lines = [
        "| pixel / tile density | " + " | ".join(heads) + " |",
        "|---" * (len(heads) + 1) + "|",
    ]
    for side, found in by_side(rows).items():
        cells = [show(found[level]) if level in found else "" for level in densities]
        cells += [] if last_head is None else [last(found.values())]
        lines.append(f"| {side} | " + " | ".join(cells) + " |")
    return lines


def _conditions(row: Row) -> str:
    index = (
        f"an index for every {row.index_every} calls" if row.index_every else "indices built before"
    )
    chains = f"chains of {row.calls} calls, {row.rotated_mb:.3g} MB of distinct inputs"
    return f"Tile {row.tile}, {index}, {chains}."
