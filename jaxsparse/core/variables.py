"""`nnx.Variable` (`nnx.Param` and the others) where an op takes an array: the public functions take
it and compute with what it holds. Told by its methods, so that flax need not be installed.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

import jax
import numpy as np

_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")
#: What holds no variable, or is read only once.
_PLAIN = (jax.Array, np.ndarray, np.generic, str, int, float, Iterator)


def is_variable(value: object) -> bool:
    """Whether `value` is a `flax.nnx.Variable`."""
    kind = type(value)
    return all(callable(getattr(kind, name, None)) for name in ("get_value", "get_metadata"))


def unwrap(value: Any) -> Any:
    """`value` with what its `nnx.Variable`s hold in their place: `value` is one, or a pytree (a
    `PrunedWeight`, a list of kernels) that has some as leaves. A value without any is returned as
    it is.
    """
    if value is None or isinstance(value, _PLAIN):
        return value
    if is_variable(value):
        return unwrap(value.get_value())
    if isinstance(value, dict):  # of options, perhaps: whose keys no pytree takes
        found = {key: unwrap(each) for key, each in value.items()}
        return found if any(found[key] is not value[key] for key in found) else value
    leaves, tree = jax.tree.flatten(value, is_leaf=is_variable)
    if not any(map(is_variable, leaves)):
        return value
    return jax.tree.unflatten(tree, map(unwrap, leaves))


def takes_variables(op: Callable[_Given, _Found]) -> Callable[_Given, _Found]:
    """The public function `op`, which takes an `nnx.Variable` for any argument that is an array or
    holds some.
    """

    @functools.wraps(op)
    def unwrapping(*args: _Given.args, **kwargs: _Given.kwargs) -> _Found:
        run: Callable[..., _Found] = op
        given = [unwrap(value) for value in args]
        return run(*given, **{name: unwrap(value) for name, value in kwargs.items()})

    return unwrapping
