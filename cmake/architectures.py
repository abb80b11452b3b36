"""Lists of CUDA architectures: what a user may write, and which of them each kernel file is
compiled for.

An entry is a compute capability without its dot, `80` to `121`, with CMake's suffixes: `90a-real`
is machine code, `100-virtual` is PTX, `100` is both. Entries are separated by `;`, `,` or spaces;
`native` is the GPUs of this machine. The order does not matter.

`cuda/architectures.toml` says what a kernel file needs, where that is more than any of the list. As
a command this prints, for each need that occurs, nvcc's options and the files, as
`<need>|<options>|<files>`.
"""

import argparse
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

#: What a wheel for everybody holds. sm_90a is not forward compatible, so PTX comes from sm_100.
RELEASE = "80-real;86-real;89-real;90a-real;100-real;100-virtual;120-real"
KNOWN = (80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121)
#: GPUs of one major version, each of which runs the machine code of those before it. Those
#: of integrated devices (87, 88, 110) stand alone.
FAMILIES = ((80, 86, 89), (100, 103), (120, 121))
_ENTRY = re.compile(r"(?:sm_|compute_)?(\d+)(a|f)?(-real|-virtual)?")


class Entry(NamedTuple):
    """One architecture: 90, "a", "-real"."""

    number: int
    feature: str
    kind: str

    def __str__(self) -> str:
        return f"{self.number}{self.feature}{self.kind}"


def parse(text: str, gpus: Iterable[tuple[int, int]] = ()) -> list[Entry]:
    """The entries of a list, sorted, each once.

    Raises:
        ValueError: for an entry that is not an architecture, one older than sm_80, `native`
            without a GPU, or an empty list.
    """
    words = [word for word in re.split(r"[;,\s]+", text.strip()) if word]
    if not words:
        raise ValueError(f"the list of CUDA architectures is empty; the release is {RELEASE}")
    entries = set()
    for word in words:
        if word == "native":
            entries |= set(of_gpus(gpus))
            continue
        found = _ENTRY.fullmatch(word)
        if found is None or int(found[1]) not in KNOWN:
            known = ", ".join(map(str, KNOWN))
            raise ValueError(
                f"{word!r} is not a CUDA architecture that jaxsparse compiles for: it takes "
                f"{known} (90a for Hopper's own kernels), each with -real, -virtual or neither, "
                "or native"
            )
        entries.add(Entry(int(found[1]), found[2] or "", found[3] or ""))
    return sorted(entries)


def of_gpus(gpus: Iterable[tuple[int, int]]) -> list[Entry]:
    """Machine code for these GPUs alone.

    Raises:
        ValueError: when there is none.
    """
    entries = {
        Entry(major * 10 + minor, "a" if (major, minor) == (9, 0) else "", "-real")
        for major, minor in gpus
    }
    if not entries:
        raise ValueError("JAXSPARSE_CUDA_ARCHITECTURES=native, and the driver shows no GPU here")
    return sorted(entries)


class Needs(NamedTuple):
    """What kernel files need: `cuda/architectures.toml`, read."""

    files: dict[str, str]  # glob pattern below cuda/ -> architecture
    variants: dict[str, str]  # op of a variant table -> architecture

    def of(self, path: str) -> str:
        """What the file needs: a path below cuda/, or a generated unit's name. "any" by default."""
        for op in sorted(self.variants, key=len, reverse=True):
            if path.startswith(f"variants/{op}/"):
                return self.variants[op]
        met = (need for pattern, need in self.files.items() if Path(path).match(pattern))
        return next(met, "any")


def read_needs(table: Path) -> Needs:
    """The table of needs.

    Raises:
        ValueError: for a pattern that meets no file.
    """
    read = tomllib.loads(table.read_text())
    for pattern in read["files"]:
        if not any(table.parent.glob(pattern)):
            raise ValueError(f"{table.name}: no file meets {pattern!r}")
    return Needs(read["files"], read["variants"])


def meeting(need: str, entries: list[Entry]) -> list[Entry]:
    """The entries that a file with this need is compiled for."""
    if need == "any":
        return entries
    if need == "family":
        return [e for e in entries if e.kind != "-real" or not _has_older(e, entries)]
    return [e for e in entries if f"{e.number}{e.feature}" == need]


def _has_older(entry: Entry, entries: list[Entry]) -> bool:
    """Whether the list has machine code for an older GPU of the entry's family."""
    family = next((f for f in FAMILIES if entry.number in f), ())
    older = family[: family.index(entry.number)] if family else ()
    held = {e.number for e in entries if not e.feature and e.kind != "-virtual"}
    return not entry.feature and not held.isdisjoint(older)


def base(entry: Entry) -> str:
    """The PTX that machine code for the entry is made from. Code here differs between sm_80, sm_90
    and sm_90a alone, so newer and older members of a family share one pass of the compiler.
    """
    if entry.feature:
        return f"{entry.number}{entry.feature}"
    return str(max(first for first in (80, 90, 100) if first <= entry.number))


def options(entries: list[Entry]) -> list[str]:
    """nvcc's `--generate-code` options for the entries."""
    codes: dict[str, list[str]] = {}
    for entry in entries:
        name = f"{entry.number}{entry.feature}"
        if entry.kind != "-virtual":
            codes.setdefault(base(entry), []).append(f"sm_{name}")
        if entry.kind != "-real":
            codes.setdefault(name, []).append(f"compute_{name}")
    return [
        f"--generate-code=arch=compute_{ptx},code=[{','.join(dict.fromkeys(made))}]"
        for ptx, made in codes.items()
    ]


def flags(need: str, entries: list[Entry]) -> list[str]:
    """nvcc's options for the files with this need.

    Where no entry meets it, the files are compiled for the first one without their kernels: bodies
    stand under the same condition, and the host does not launch them. What only a body uses is
    then unused, so that warning is off.
    """
    met = meeting(need, entries)
    return options(met) if met else [*options(entries[:1]), "--diag-suppress=177"]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--table", type=Path, required=True)
    parser.add_argument("--architectures", required=True)
    parser.add_argument("sources", nargs="+", help="paths below cuda/, variants/<op>/<unit>")
    arguments = parser.parse_args()
    needs, entries = read_needs(arguments.table), parse(arguments.architectures)
    groups: dict[str, list[str]] = {}
    for source in arguments.sources:
        groups.setdefault(needs.of(source), []).append(source)
    for need, sources in sorted(groups.items()):
        print(need, " ".join(flags(need, entries)), " ".join(sources), sep="|")


if __name__ == "__main__":
    main()
