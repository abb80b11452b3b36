"""The leaves of a parameter tree by path, and errors that name one."""

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax


@contextlib.contextmanager
def naming(what: str) -> Iterator[None]:
    """Errors inside of the `with` block say what they are about."""
    try:
        yield
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{what}: {error}") from error


def named(params: Any) -> list[tuple[str, Any]]:
    """The leaves of a tree by path, in its order.

    Raises:
        ValueError: when two leaves have the same path, naming it.
    """
    leaves, _ = jax.tree_util.tree_flatten_with_path(params)
    found = [(_name(path), leaf) for path, leaf in leaves]
    twice = [name for name, count in Counter(name for name, _ in found).items() if count > 1]
    if twice:
        raise ValueError(f"params has two leaves of the path {twice[0]!r} (keys joined by '/')")
    return found


def _name(path: Any) -> str:
    """Of a leaf: its keys, without the one that wraps an nnx variable's value."""
    keys = [str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", k)))) for k in path]
    if len(keys) > 1 and keys[-1] == "value":
        keys.pop()
    return "/".join(keys)
