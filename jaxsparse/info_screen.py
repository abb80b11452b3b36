"""The screen of `jaxsparse info`: a line a fact and a table of the ops. A terminal gets 100
columns, where a longer text is cut; a pipe or a file gets whole lines.
"""

import collections
import io
from collections.abc import Callable
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

WIDTH = 100
#: More columns than any line has.
_UNCUT = 100_000
#: How JAX gets to see a GPU that the system has.
GET_GPU = "the system has one: pip install 'jax[cuda13]'"


def show(facts: dict[str, Any]) -> None:
    """Print the screen, with colours where a terminal shows it; elsewhere nothing is cut."""
    console = Console(highlight=False)
    if console.is_terminal:
        console.width = min(console.width, WIDTH)
        console.print(_screen(facts))
        return
    screen = _screen(facts, whole=True)
    console.width = _UNCUT
    console.print(screen)


def render(facts: dict[str, Any]) -> str:
    """The screen as text."""
    console = Console(width=WIDTH, file=io.StringIO(), color_system=None)
    console.print(_screen(facts))
    return console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]


def _screen(facts: dict[str, Any], *, whole: bool = False) -> Group:
    """A line a fact, a table of the ops, and why none of them runs something else; `whole`: no
    column has a greatest width.
    """

    def line(label: str, text: str) -> Text:
        made = Text(f"{label:14} ", style="bold", no_wrap=True, overflow="ellipsis")
        return made.append(text, style="not bold")

    head = [line(label, _line(of, needs, facts)) for label, of, needs in _LINES]
    ops = facts["ops"]
    if "error" in ops:
        return Group(*head, line("ops", ops["error"]))
    common = _common(ops)
    rows = [(name, *_cells(op, common)) for name, op in ops.items()]
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    titles = ("op", "runs", "chooses among", "why not the others")
    shown = [i for i in range(len(titles)) if any(row[i] for row in rows)]
    for i in shown:
        width = 30 if i == 2 and 3 in shown and not whole else None
        least = max(len(row[i]) for row in rows) if i < 2 else None  # names are never cut
        table.add_column(
            titles[i], no_wrap=True, overflow="ellipsis", min_width=least, max_width=width
        )
    for row in rows:
        table.add_row(*(Text(row[i]) for i in shown))
    below = [line(f"not {name}", why) for name, why in common.items()]
    return Group(*head, table, *below, Text("jaxsparse info --json has every fact", style="dim"))


def _line(
    of: Callable[[dict[str, Any]], str], needs: tuple[str, ...], facts: dict[str, Any]
) -> str:
    """One line of the head; where a fact that it needs is missing, why."""
    missing = [facts[name]["error"] for name in needs if "error" in facts[name]]
    return "; ".join(missing) or of(facts)


def _versions_line(facts: dict[str, Any]) -> str:
    found = dict(facts["versions"])
    plugin = found.pop("jax-cuda13-plugin")
    parts = [f"{found.pop('jaxsparse')}", f"Python {found.pop('python')}"]
    parts += [f"{name} {version}" for name, version in found.items()]
    if plugin != "not installed":
        parts.append(f"jax-cuda13-plugin {plugin}")
    return ", ".join(parts)


def _cpu_line(facts: dict[str, Any]) -> str:
    found = facts["cpu"]
    return f"{found['model']} ({found['machine']}), {found['cores']} cores, {found['kernels']}"


def _gpu_line(facts: dict[str, Any]) -> str:
    found = facts["devices"]["cuda"]
    if isinstance(found, list):
        counted = collections.Counter(found)
        return ", ".join(f"{n} x {kind}" if n > 1 else kind for kind, n in counted.items())
    return "none that JAX sees" + (f"; {GET_GPU}" if facts["devices"]["nvidia_driver"] else "")


def _cuda_line(facts: dict[str, Any]) -> str:
    build = facts["build"]
    if build["cuda"] != "ON":
        return f"not built ({build['why']}); {build['get']}"
    module = facts["modules"]["cuda"]
    return module.get("error") or f"for {module['architectures']} ({build['why']})"


#: Label, what writes the line, the facts that it needs.
_LINES: tuple[tuple[str, Callable[[dict[str, Any]], str], tuple[str, ...]], ...] = (
    ("jaxsparse", _versions_line, ("versions",)),
    ("CPU", _cpu_line, ("cpu",)),
    ("GPU", _gpu_line, ("devices",)),
    ("CUDA kernels", _cuda_line, ("build", "modules")),
)


def _common(ops: dict[str, Any]) -> dict[str, str]:
    """The reasons that are the same for every op."""
    against = [op["not"] for op in ops.values() if "not" in op]
    first = against[0] if against else {}
    return {name: why for name, why in first.items() if all(a.get(name) == why for a in against)}


def _cells(op: dict[str, Any], common: dict[str, str]) -> tuple[str, str, str]:
    """What an op runs, among which variants it chooses, and why not the others."""
    if "error" in op:
        return "?", "", op["error"]
    names = op["variants"]
    own = [f"{name}: {why}" for name, why in op["not"].items() if name not in common]
    return op["takes"], f"{len(names)}: {', '.join(names)}" if names else "", "; ".join(own)
