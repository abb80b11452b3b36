"""Whether two builds of the kernels hold the same machine code.

`compare_cubins.py <a> <b>` takes two static libraries (libjaxsparse_kernels.a), objects or shared
modules of CUDA code, and compares them kernel by kernel and architecture by architecture: the bytes
of the instructions and constants, and what cuobjdump -res-usage says (registers, stack, shared
memory, parameters). It prints `N kernels compared, M differ`, then each difference by name, and
exits with 1 where there is one.

A kernel with internal linkage has its file's name and a hash of the file in its symbol. Both are
left out, so that files may move: kernels that are called the same then are compared as a set.

Needs `cuobjdump`: of the toolkit, or `pip install nvidia-cuda-cuobjdump` with its folder on PATH.
"""

import argparse
import hashlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

#: (architecture, name) -> what the kernels of this name are, each with how often it comes.
Kernels = dict[tuple[str, str], Counter[str]]

_LENGTH = re.compile(r"(\d+)(?=_GLOBAL__N__)")
_LOCAL = re.compile(r"_GLOBAL__N__[0-9a-f]{8}_(\d+)_(\w+)_[0-9a-f]{8}(_\d+)?")
_USAGE = re.compile(
    r"^arch = (?P<architecture>\S+)$|^ Function (?P<symbol>\S+):\n\s+(?P<usage>.*)$", re.MULTILINE
)
_NO_BITS = 8  # the ELF type of a section without content


def is_local(name: str) -> bool:
    """Whether a namespace is what nvcc calls that of internal linkage: two hashes around a file."""
    match = _LOCAL.fullmatch(name)
    return match is not None and len(match[2]) == int(match[1])


def stable_name(symbol: str) -> str:
    """A symbol without what it says of its file: the namespace of internal linkage is `local`.

    A name is written as its length and as many characters; digits in front of the length belong to
    the name before it.
    """
    out, at = "", 0
    while match := _LENGTH.search(symbol, at):
        digits, begin = match[1], match.end()
        ends = {skip: begin + int(digits[skip:]) for skip in range(len(digits))}
        fits = [s for s, end in ends.items() if end <= len(symbol) and is_local(symbol[begin:end])]
        if fits:
            out += symbol[at : match.start()] + digits[: fits[0]] + "local"
            at = ends[fits[0]]
        else:
            out += symbol[at : begin + 1]
            at = begin + 1
    return out + symbol[at:]


def members(library: Path) -> Iterator[bytes]:
    """The objects of a static library; a file that is not one is its own only object."""
    data = library.read_bytes()
    if not data.startswith(b"!<arch>\n"):
        yield data
        return
    at = 8
    while at + 60 <= len(data):
        name, size = data[at : at + 16].strip(), int(data[at + 48 : at + 58])
        if name not in (b"/", b"//", b"/SYM64/"):
            yield data[at + 60 : at + 60 + size]
        at += 60 + size + size % 2


def run(cuobjdump: str, option: list[str], path: Path) -> str:
    """What cuobjdump says of a file, in the file's folder; empty for a file without CUDA code."""
    call = [cuobjdump, *option, path.name]
    result = subprocess.run(call, cwd=path.parent, capture_output=True, text=True)
    if result.returncode != 0 and b".nv_fatbin" in path.read_bytes():
        raise RuntimeError(f"{' '.join(call)}: {result.stderr}")
    return result.stdout


def sections(elf: bytes) -> Iterator[tuple[str, bytes]]:
    """(name, content) of each section of a 64-bit ELF file."""
    if elf[:5] != b"\x7fELF\x02":
        raise ValueError("not a 64-bit ELF file")
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    entry, count, names = struct.unpack_from("<HHH", elf, 0x3A)
    rows = [struct.unpack_from("<IIQQQQIIQQ", elf, table + i * entry) for i in range(count)]
    for name, kind, _, _, offset, size, *_ in rows:
        begin = rows[names][4] + name
        text = elf[begin : elf.index(b"\0", begin)].decode()
        yield text, b"" if kind == _NO_BITS else elf[offset : offset + size]


def code_of(elf: bytes) -> dict[str, bytes]:
    """Symbol -> the instructions and constants of a kernel."""
    by_name = dict(sections(elf))
    symbols = [n.removeprefix(".text.") for n in by_name if n.startswith(".text.")]
    constants = [n for n in by_name if n.startswith(".nv.constant")]
    return {
        symbol: b"".join(
            by_name[n]
            for n in (f".text.{symbol}", *sorted(c for c in constants if c.endswith(f".{symbol}")))
        )
        for symbol in symbols
    }


def usage_of(text: str) -> dict[tuple[str, str], str]:
    """(architecture, symbol) -> registers, stack and shared memory, from `cuobjdump -res-usage`."""
    found, architecture = {}, ""
    for match in _USAGE.finditer(text):
        architecture = match["architecture"] or architecture
        if match["symbol"]:
            found[architecture, match["symbol"]] = match["usage"]
    return found


def kernels(library: Path, cuobjdump: str) -> Kernels:
    """Every kernel of the library."""
    found: Kernels = {}
    for member in members(library):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "member.o"
            path.write_bytes(member)
            usage = usage_of(run(cuobjdump, ["-res-usage"], path))
            run(cuobjdump, ["-xelf", "all"], path)
            for cubin in sorted(Path(folder).glob("*.cubin")):
                architecture = cubin.name.split(".")[-2]
                for symbol, code in code_of(cubin.read_bytes()).items():
                    digest, size = hashlib.sha256(code).hexdigest()[:16], len(code)
                    what = f"{digest}, {size} bytes, {usage.get((architecture, symbol), '')}"
                    found.setdefault((architecture, stable_name(symbol)), Counter())[what] += 1
    return found


def differences(a: Kernels, b: Kernels) -> list[str]:
    """One line a kernel that is not the same in both."""
    lines = []
    for key in sorted(a.keys() | b.keys()):
        left, right = a.get(key, Counter()), b.get(key, Counter())
        if left == right:
            continue
        what = (
            "differs" if left and right else "only in the first" if left else "only in the second"
        )
        lines.append(f"{' '.join(key)}: {what}")
        if left and right:
            lines += [f"  first:  {w}" for w in left - right] + [
                f"  second: {w}" for w in right - left
            ]
    return lines


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("a", type=Path)
    parser.add_argument("b", type=Path)
    arguments = parser.parse_args()
    cuobjdump = shutil.which("cuobjdump") or shutil.which("/usr/local/cuda/bin/cuobjdump")
    if cuobjdump is None:
        parser.error(
            "no cuobjdump on PATH: take the toolkit's, or pip install nvidia-cuda-cuobjdump"
        )
    a, b = kernels(arguments.a, cuobjdump), kernels(arguments.b, cuobjdump)
    none: Counter[str] = Counter()
    total = sum(max(a.get(k, none).total(), b.get(k, none).total()) for k in a.keys() | b.keys())
    lines = differences(a, b)
    differ = sum(not line.startswith("  ") for line in lines)
    print(f"{total} kernels compared, {differ} differ")
    print("\n".join(lines), end="\n" if lines else "")
    return 1 if lines or total == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
