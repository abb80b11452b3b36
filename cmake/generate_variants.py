"""Variants are data: one table of variants becomes translation units, a launcher and a Python
table.

`generate_variants.py <table>.toml --out-dir D` writes, for the op that the table names,

- `D/<op>_<variant>.cu`, where the table has a `[unit]` with a `template` (a `str.format` string
  over the row's fields, `dtype` and `dtype_cpp`) and `dtypes` (name -> C++ type): the row in all
  dtypes, and with `rows` as many rows, from this one on, since the headers of a unit take the
  compiler a second; `suffix` changes `.cu`;
- `D/<op>_table.inc`: `JAXSPARSE_VARIANT(number, "name", <columns...>)` a row, in the order of
  `[op] columns`;
- `D/<op>_variants.json`: `{"op", "columns", "variants": [{"name", "number", ...fields}]}`;

and prints the paths of the translation units, one a line. A row's number is its `number` field, or
its place in the table. A row without the columns (a kernel that takes no parameters) gets neither a
unit nor a line in the launcher table. Files whose text is unchanged are left alone, so that a build
does not start over.
"""

import argparse
import json
import tomllib
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def read_rows(table: Row) -> list[Row]:
    """The table's variants with their numbers.

    Raises:
        ValueError: when a name or a number comes twice, or a row has some but not all columns.
    """
    columns = table["op"].get("columns", [])
    rows = [{"number": place, **row} for place, row in enumerate(table["variant"])]
    for key in ("name", "number"):
        values = [row[key] for row in rows]
        twice = sorted({str(v) for v in values if values.count(v) > 1})
        if twice:
            raise ValueError(f"{key} comes twice in the variant table: {', '.join(twice)}")
    for row in rows:
        missing = [c for c in columns if c not in row]
        if missing and len(missing) < len(columns):
            raise ValueError(f"variant {row['name']} lacks {', '.join(missing)}")
    return rows


def literal(value: Any) -> str:
    """A TOML value as a C++ literal."""
    return json.dumps(value) if isinstance(value, bool | str) else str(value)


def launcher_line(row: Row, columns: list[str]) -> str:
    """The row as one macro line."""
    fields = [row["number"], row["name"], *(row[c] for c in columns)]
    return f"JAXSPARSE_VARIANT({', '.join(map(literal, fields))})\n"


def units(op: str, unit: Row, rows: list[Row]) -> dict[str, str]:
    """File name -> text of the translation units."""
    each, suffix = unit.get("rows", 1), unit.get("suffix", ".cu")
    template = unit["template"].lstrip("\n")
    return {
        f"{op}_{rows[begin]['name']}{suffix}": "\n".join(
            template.format(**row, dtype=dtype, dtype_cpp=cpp)
            for row in rows[begin : begin + each]
            for dtype, cpp in unit["dtypes"].items()
        )
        for begin in range(0, len(rows), each)
    }


def write(path: Path, text: str) -> None:
    """Write the file unless it holds this text already."""
    if not path.is_file() or path.read_text() != text:
        path.write_text(text)


def generate(table: Row, out: Path) -> list[Path]:
    """Write everything; the paths of the translation units."""
    op, columns = table["op"]["name"], table["op"].get("columns", [])
    rows = read_rows(table)
    parametric = [row for row in rows if all(c in row for c in columns)]
    out.mkdir(parents=True, exist_ok=True)
    files: dict[str, str] = {}
    if "unit" in table:
        files |= units(op, table["unit"], parametric)
    for name, text in files.items():
        write(out / name, text)
    write(out / f"{op}_table.inc", "".join(launcher_line(row, columns) for row in parametric))
    description = {"op": op, "columns": columns, "variants": rows}
    write(out / f"{op}_variants.json", json.dumps(description, indent=1) + "\n")
    return [out / name for name in files]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("table", type=Path)
    parser.add_argument("--out-dir", type=Path, required=True)
    arguments = parser.parse_args()
    for path in generate(tomllib.loads(arguments.table.read_text()), arguments.out_dir):
        print(path)


if __name__ == "__main__":
    main()
