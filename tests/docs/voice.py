"""The words of the pages, comments, docstrings and messages: habits to avoid, and what to write.

`python tests/docs/voice.py FILE ...` prints every place; the exit status is 1 when there are some.
CONTRIBUTING.md explains why.
"""

import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

#: (habit, what to write). A habit is a regular expression over text whose line breaks are spaces.
HABITS: list[tuple[str, str]] = [
    (
        r"(?<!\bthere )\b(?:is|are|was|were|be|being) no (?!more\b|less\b|fewer\b|such\b|worse\b"
        r"|(?:long|bett|wid|narrow|fast|slow|small|high|low|great|lat|earli|deep|near)er\b|larger\b)"
        r"[\w`\"']",
        "is not a ..., are not ...",
    ),
    (r"(?<!\bthere )\b(?:is|are) no such (?!thing)\w+", "is not such a ..."),
    (r"\bsp(?:eaks?|oke|eaking) of\b", "concerns, means, holds for"),
    (r"\bsays? nothing of\b", "does not cover"),
    (r"\bbehind (?:your|the \w+'s|their) backs?\b", "silently"),
    (r"\bin vain\b", "unnecessarily"),
    (r"\b(?:for )?whoever\b", "a caller that, what"),
    (r"\bnobody\b", "nothing, no thread, or the passive"),
    (r"\bat the mercy of\b", "depends on"),
    (r"\bat hand\b", "available, given"),
    (r"\b(?:lets?|letting) go of\b|\bis let go\b", "releases"),
    (r"\bas (?:it|they) (?:lies?|lay)\b", "in place, in its own layout"),
    (r"\bmeets? (?:in )?(?:no|a|the same|any|another's|different) banks?\b", "bank conflict"),
    (r"\bmeets? in a bank\b", "bank conflict"),
    (r"\b(?:warps?|threads|cluster|blocks) (?:all )?meets?\b", "synchronise"),
    (r"\btrades? (?:lanes|halves|pairs|columns)\b", "exchange, transpose"),
    (r"\bmend(?:s|ed|ing)?\b", "fix"),
    (r"\breasons? why not\b", "reason against it"),
]
_COMPILED = [(re.compile(habit, re.IGNORECASE), better) for habit, better in HABITS]
_COMMENT = {".h", ".cc", ".cu", ".cuh"}


def markdown_text(source: str) -> str:
    """A page without its code: fences and code spans become spaces, line breaks stay."""
    blank = lambda match: re.sub(r"[^\n]", " ", match[0])  # noqa: E731
    source = re.sub(r"^( {0,3})(```|~~~).*?^\1\2\s*$", blank, source, flags=re.M | re.S)
    return re.sub(r"`[^`\n]+`", blank, source)


def python_text(source: str) -> str:
    """Comments and strings of a Python file, everything else as spaces."""
    return _kept(source, _python_spans(source))


def _python_spans(source: str) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    strings = {tokenize.STRING, tokenize.COMMENT}
    strings |= {getattr(tokenize, name, -1) for name in ("FSTRING_MIDDLE",)}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in strings:
            yield token.start, token.end


def native_text(source: str) -> str:
    """Comments and strings of a C++ or CUDA file, everything else as spaces."""
    pattern = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"'
    kept = list(re.finditer(pattern, source, re.DOTALL))
    out = [c if c == "\n" else " " for c in source]
    for match in kept:
        out[match.start() : match.end()] = match[0]
    return "".join(out)


def _kept(source: str, spans: Iterator[tuple[tuple[int, int], tuple[int, int]]]) -> str:
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    out = [c if c == "\n" else " " for c in source]
    for (row, column), (end_row, end_column) in spans:
        first, last = starts[row - 1] + column, starts[end_row - 1] + end_column
        out[first:last] = source[first:last]
    return "".join(out)


def text_of(path: Path) -> str:
    """What a reader reads in a file, at its places in the file."""
    source = path.read_text()
    if path.suffix == ".md":
        return markdown_text(source)
    if path.suffix == ".py":
        return python_text(source)
    return native_text(source) if path.suffix in _COMMENT else source


def habits(text: str) -> Iterator[tuple[int, str, str]]:
    """(line, words, what to write) of each habit in a text. A sentence may cross lines, whose
    leading comment marks and quotes do not count.
    """
    flat = re.sub(r"\n[ \t]*(?:///?|#:?|\*)?[ \t]*", lambda m: " " * len(m[0]), text)
    squeezed, places = [], []
    for i, c in enumerate(flat):
        if c == " " and squeezed and squeezed[-1] == " ":
            continue
        squeezed.append(c)
        places.append(i)
    line = "".join(squeezed)
    for pattern, better in _COMPILED:
        for match in pattern.finditer(line):
            yield text.count("\n", 0, places[match.start()]) + 1, match[0], better


def main(files: list[str]) -> int:
    """Print every habit in the files."""
    found = 0
    for file in files:
        for line, words, better in sorted(habits(text_of(Path(file)))):
            print(f"{file}:{line}: {words!r}: write {better!r}")
            found += 1
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
