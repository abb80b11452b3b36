"""The expressions of a contract: integers, names, `+ - * // % **`, comparisons, `and`, `or`,
`a if c else b`, and a few functions. They become C++ that notices overflow, and Python numbers.
"""

import ast
import operator
from collections.abc import Callable, Mapping

#: Name in a contract -> (name in C++, meaning in Python).
FUNCTIONS: dict[str, tuple[str, Callable[..., int]]] = {
    "ceil": ("CeilOf", lambda a, b: -(-a // b)),
    "words": ("WordsOf", lambda a: -(-a // 32)),
    "min": ("LeastOf", min),
    "max": ("MostOf", max),
    "two_to": ("TwoTo", lambda a: 2**a),
}
_BINARY = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "/", ast.Mod: "%"}
_ARITHMETIC: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_ORDER: dict[type, Callable[[int, int], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_COMPARE = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}


def parse(text: str | int) -> ast.expr:
    """The expression's tree.

    Raises:
        ValueError: for what is not an expression.
    """
    try:
        return ast.parse(str(text), mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"{text!r} is not an expression") from error


def is_name(text: str | int) -> bool:
    """Whether it is one name and nothing else."""
    return isinstance(text, str) and text.isidentifier()


def names(text: str | int) -> set[str]:
    """The names that the value depends on; `given(x)` and `size(x)` name arrays, not numbers."""
    tree = parse(text)
    found = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    called = {node.func.id for node in calls if isinstance(node.func, ast.Name)}
    asked = {
        node.args[0].id
        for node in calls
        if isinstance(node.func, ast.Name)
        and node.func.id in ("given", "size")
        and isinstance(node.args[0], ast.Name)
    }
    return found - called - asked


def constant(text: str | int) -> int:
    """The value of an expression without names."""
    return evaluate(text, {})


def evaluate(text: str | int, values: Mapping[str, int], sizes: Mapping[str, int] | None = None):
    """The value where names stand for `values`, and `size(x)` for `sizes["x"]`.

    Raises:
        ZeroDivisionError: as Python.
        ValueError: for a name that has no value, or what a contract may not say.
    """
    return _evaluate(parse(text), values, sizes or {})


def _evaluate(node: ast.expr, values: Mapping[str, int], sizes: Mapping[str, int]):
    def at(inner: ast.expr):
        return _evaluate(inner, values, sizes)

    match node:
        case ast.Constant(value=int()):
            return node.value
        case ast.Name(id=name) if name in values:
            return int(values[name])
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return at(left) ** at(right)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _ARITHMETIC[type(op)](at(left), at(right))
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -at(inner)
        case ast.IfExp(test=test, body=body, orelse=other):
            return at(body) if at(test) else at(other)
        case ast.BoolOp(op=op, values=parts):
            return (all if isinstance(op, ast.And) else any)(at(part) for part in parts)
        case ast.Compare(left=left, ops=ops, comparators=others):
            sides = [at(left), *map(at, others)]
            return all(
                _ORDER[type(op)](a, b) for a, op, b in zip(sides, ops, sides[1:], strict=False)
            )
        case ast.Call(func=ast.Name(id="given"), args=[ast.Name(id=name)]):
            return sizes[name] > 0
        case ast.Call(func=ast.Name(id="size"), args=[ast.Name(id=name)]):
            return sizes[name]
        case ast.Call(func=ast.Name(id=name), args=args) if name in FUNCTIONS:
            return FUNCTIONS[name][1](*map(at, args))
    raise ValueError(f"{ast.unparse(node)!r} is not something that a contract may say")


def to_cpp(text: str | int, member: Callable[[str], str]) -> str:
    """The expression in C++, over `Checked` numbers; `member(name)` is where a name's value is."""
    return _cpp(parse(text), member)


def _cpp(node: ast.expr, member: Callable[[str], str]) -> str:
    def at(inner: ast.expr) -> str:
        return _cpp(inner, member)

    match node:
        case ast.Constant(value=int()):
            return f"Checked({node.value})"
        case ast.Name(id=name):
            return f"Checked({member(name)})"
        case ast.BinOp(op=ast.Pow()):
            return f"Checked(INT64_C({_evaluate(node, {}, {})}))"
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return f"({at(left)} {_BINARY[type(op)]} {at(right)})"
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return f"(Checked(0) - {at(inner)})"
        case ast.IfExp(test=test, body=body, orelse=other):
            return f"({at(test)} ? {at(body)} : {at(other)})"
        case ast.BoolOp(op=op, values=parts):
            return "(" + (" && " if isinstance(op, ast.And) else " || ").join(map(at, parts)) + ")"
        case ast.Compare(left=left, ops=ops, comparators=others):
            sides = [at(left), *map(at, others)]
            pairs = zip(sides, ops, sides[1:], strict=False)
            return "(" + " && ".join(f"{a} {_COMPARE[type(o)]} {b}" for a, o, b in pairs) + ")"
        case ast.Call(func=ast.Name(id="given"), args=[ast.Name(id=name)]):
            return f"{member(name)}.given()"
        case ast.Call(func=ast.Name(id="size"), args=[ast.Name(id=name)]):
            return f"Checked({member(name)}.size)"
        case ast.Call(func=ast.Name(id=name), args=args) if name in FUNCTIONS:
            return f"{FUNCTIONS[name][0]}({', '.join(map(at, args))})"
    raise ValueError(f"{ast.unparse(node)!r} is not something that a contract may say")
