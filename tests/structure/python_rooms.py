"""What `test_python_rooms.py` reads: the imports, constants and annotations of a tree of Python
modules. Text in, findings out, so that each check can be tried on a violation made for it.
"""

import ast
from collections.abc import Iterator, Mapping

#: The rooms of `jaxsparse/` from the bottom up. A module imports its own room and those below it;
#: modules of the package itself (`info.py`, `__init__.py`) stand above all, but for `version`.
ROOMS = (
    "version",
    "core",
    "ffi",
    "mask",
    "testing",
    "recorder",
    "reference",
    "select",
    "bits",
    "index",
    "pruned",
    "bounded",
    "ops",
    "export",
    "nn",
    "bench",
    "tune",
)
#: A constant or call of the machine's, and the one module that may hold it.
HOMES = {
    "the dtypes' table": "jaxsparse.core.dtypes",
    "the 16-bit dtypes": "jaxsparse.core.dtypes",
    "the number of cores": "jaxsparse.core.device",
    "a device's constant": "jaxsparse.core.device",
    "the activations' table": "jaxsparse.core.activations",
    "a contract's enum": "jaxsparse.core.contract",
}
DEVICE_NUMBERS = {132, 1755}  # an H200's multiprocessors, and its cycles a microsecond
CORES = {"cpu_count", "process_cpu_count", "sched_getaffinity"}

Edge = tuple[str, str]


def module_name(path: str) -> str:
    """`a/b/c.py` -> `a.b.c`, and `a/b/__init__.py` -> `a.b.__init__`: what a package offers, which
    may come from anywhere in it, is a module of its own.
    """
    return path.removesuffix(".py").replace("/", ".")


def imports(name: str, text: str, modules: set[str]) -> Iterator[str]:
    """The modules of `modules` that module `name` imports, in functions as well. What an
    `__init__` offers late, under TYPE_CHECKING and through `core.lazy`, it does not import.
    """
    tree = ast.parse(text)
    late = late_offers(tree) if name.endswith(".__init__") else set()
    package = name.rpartition(".")[0]
    for node in ast.walk(tree):
        if node in late:
            continue
        if isinstance(node, ast.Import):
            found = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level]
            base = ".".join([*above, node.module or ""]).strip(".") if node.level else node.module
            found = [(base or "", alias.name) for alias in node.names]
        else:
            continue
        for base, member in found:
            candidates = (f"{base}.{member}", f"{base}.{member}.__init__", base, f"{base}.__init__")
            yield from [c for c in candidates if c in modules][:1]


def late_offers(tree: ast.Module) -> set[ast.AST]:
    """The imports under `if TYPE_CHECKING:` of an `__init__` that makes its names with `lazy`."""
    lazy = any(isinstance(n, ast.Call) and ast.unparse(n.func) == "lazy" for n in ast.walk(tree))
    guards = [n for n in tree.body if isinstance(n, ast.If)]
    checked = [n for n in guards if ast.unparse(n.test) == "TYPE_CHECKING"]
    return {inner for n in checked for inner in n.body} if lazy else set()


def edges(sources: Mapping[str, str]) -> set[Edge]:
    """(module, imported module) for every import among `sources`, path -> text."""
    texts = {module_name(path): text for path, text in sources.items()}
    found = {(a, b) for a, text in texts.items() for b in imports(a, text, set(texts))}
    return {(a, b) for a, b in found if a != b}


def rank(name: str) -> int:
    """The layer of a module, counted from the bottom."""
    room = name.split(".")[1]
    return ROOMS.index(room) if room in ROOMS else len(ROOMS)


def backwards(found: set[Edge]) -> list[str]:
    """The imports of a module in a room above."""
    return [f"{a} imports {b}" for a, b in sorted(found) if rank(b) > rank(a)]


def folder_edges(found: set[Edge]) -> set[Edge]:
    """The edges between folders. An `__init__` is apart from the folder's other modules, and a
    module of the package itself is a room of its own.
    """
    alone = {n for e in found for n in e if n.endswith(".__init__") or n.count(".") == 1}
    nodes = {n: n if n in alone else n.rpartition(".")[0] for e in found for n in e}
    return {(nodes[a], nodes[b]) for a, b in found if nodes[a] != nodes[b]}


def second_homes(name: str, text: str) -> list[str]:
    """The definitions in module `name` that have their one home elsewhere (`HOMES`)."""
    found = []
    for node in ast.walk(ast.parse(text)):
        where = f"{name}:{getattr(node, 'lineno', 0)}: "
        found += [where + what for what in _definitions(node) if HOMES[what] != name]
    return found


def _definitions(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Dict):
        keys = {k.value for k in node.keys if isinstance(k, ast.Constant)}
        values = [v.value for v in node.values if isinstance(v, ast.Constant)]
        whole = len(values) == len(node.values) and all(type(v) is int for v in values)
        if {"float32", "bfloat16", "float16"} <= keys and whole:
            yield "the dtypes' table"
        if {"relu", "relu6", "silu"} <= keys:
            yield "the activations' table"
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        values = [e.value for e in node.elts if isinstance(e, ast.Constant)]
        if len(node.elts) == 2 and set(values) == {"bfloat16", "float16"}:
            yield "the 16-bit dtypes"
    if isinstance(node, ast.Attribute) and node.attr in CORES:
        yield "the number of cores"
    if isinstance(node, ast.Constant) and node.value in DEVICE_NUMBERS:
        yield "a device's constant"
    bases = node.bases if isinstance(node, ast.ClassDef) else []
    if {"IntEnum", "IntFlag"} & {ast.unparse(b).rpartition(".")[2] for b in bases}:
        yield "a contract's enum"


def parameters(text: str) -> Iterator[tuple[str, bool]]:
    """(function.parameter, whether its type is known): annotated, and without `Any`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            args = node.args
            given = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
            for arg in given:
                if arg is not None and arg.arg not in ("self", "cls"):
                    yield f"{node.name}.{arg.arg}", _known(arg.annotation)


def _known(annotation: ast.expr | None) -> bool:
    if annotation is None:
        return False
    names = {n.id if isinstance(n, ast.Name) else "" for n in ast.walk(annotation)}
    names |= {n.attr for n in ast.walk(annotation) if isinstance(n, ast.Attribute)}
    return "Any" not in names
