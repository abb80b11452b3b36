"""What mkdocs does beside its own (mkdocs.yml, `hooks`).

A link from a page to a file outside of docs/ works in the repository as it is written, and on the
site, where the file is published under `repo/`. A directive of an API page names what a user
imports, `::: jaxsparse.masked_conv`; it becomes the path of the definition, whatever module that is
in, under the heading `js.masked_conv`.
"""

import functools
import importlib
import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PLACE = "repo"
PACKAGE = "jaxsparse"
DIRECTIVE = re.compile(rf"^::: ({PACKAGE}\.[\w.]+)$", re.MULTILINE)
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#|/)([^)#\s]+)((?:#[^)\s]*)?)(?=\))")


def _outside(page: Path) -> dict[str, Path]:
    """Link as written -> the file that it names, for the links of `page` that leave docs/."""
    found = {}
    for link, _ in LINK.findall(page.read_text()):
        target = (page.parent / link).resolve()
        if not target.is_relative_to(ROOT / "docs") and target.is_file():
            found[link] = target
    return found


def _published(path: Path) -> str:
    """Where a file of the repository lies on the site, as mkdocs names sources."""
    if path.is_relative_to(ROOT / "docs"):
        return path.relative_to(ROOT / "docs").as_posix()
    return f"{PLACE}/{path.relative_to(ROOT).as_posix()}"


def on_files(files: Files, config: Any) -> Files:
    """Adds the files that pages link to, and those that these link to."""
    waiting = [ROOT / "docs" / f.src_uri for f in files.documentation_pages()]
    while waiting:
        for target in _outside(waiting.pop()).values():
            name = _published(target)
            if files.get_file_from_path(name) is None:
                files.append(File.generated(config, name, abs_src_path=str(target)))
                waiting += [target] if target.suffix == ".md" else []
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links between docs/ and the rest of the repository lead to where the site has them, API
    directives to definitions.
    """
    here = Path(page.file.abs_src_path)
    folder = os.path.dirname(page.file.src_uri)

    def moved(match: re.Match[str]) -> str:
        target = (here.parent / match[1]).resolve()
        if not target.is_file() or not target.is_relative_to(ROOT):
            return match[0]
        return os.path.relpath(_published(target), folder or ".") + match[2]

    return DIRECTIVE.sub(_directive, LINK.sub(moved, markdown))


def _directive(match: re.Match[str]) -> str:
    public = match[1]
    value = _public_value(public)
    heading = public.replace(PACKAGE, "js", 1)
    return (
        f"::: {value.__module__}.{value.__qualname__}\n"
        f"    options:\n      heading: {heading}\n      toc_label: {heading}"
    )


def _public_value(name: str) -> Any:
    """The object behind a dotted public name; a module on the way is imported by the package."""
    package = importlib.import_module(PACKAGE)
    return functools.reduce(getattr, name.split(".")[1:], package)
