"""A convolution by every variant of this machine that takes it, compiled as one program."""

from collections.abc import Callable
from typing import Any

import jax

import jaxsparse as js

PLATFORM = "cuda" if jax.default_backend() == "gpu" else "cpu"


def names(call: Callable[..., Any], *operands: Any, without: tuple[str, ...] = ()) -> list[str]:
    """The variants that take this problem, by what `explain` says against the others."""
    against = js.explain(call, *operands).calls[-1].against
    every = [v.name for v in js.variants("masked_conv") if v.platform == PLATFORM]
    return [name for name in every if name not in against and name not in without]


def every(call: Callable[..., Any], among: list[str]) -> Callable[..., dict[str, Any]]:
    """The function that gives `call`'s result by each of these variants, jitted."""

    @jax.jit
    def run(*operands: Any) -> dict[str, Any]:
        found = {}
        for name in among:
            with js.config(variant=name):
                found[name] = call(*operands)
        return found

    return run


def by_variant(call: Callable[..., Any], *operands: Any) -> tuple[Any, dict[str, Any]]:
    """The reference's result, and that of every variant that takes the problem."""
    among = names(call, *operands)
    assert among
    want = jax.jit(lambda *given: call(*given, implementation="reference"))(*operands)
    return want, every(call, among)(*operands)
