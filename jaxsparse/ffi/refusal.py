"""What an op holds for a platform that the demanded implementations do not run on: nothing while it
is traced, a sentence when it is lowered for that platform.

JAX traces a function once, and learns for which platform when it lowers it; a
`lax.platform_dependent` without a branch for it says that in words of its own.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax.interpreters import batching, mlir

Sentence = Callable[[str], str]


def refusing(run: Callable[..., Any], sentence: Sentence) -> Callable[..., Any]:
    """`run`, for the types of its results, which cannot be lowered.

    `sentence` says why not, of a platform. It is a part of the trace: equal ones are to be equal.
    """

    def refused(*arrays: Any) -> Any:
        leaves, tree = jax.tree.flatten(arrays)
        leaves[0] = _primitive().bind(leaves[0], sentence=sentence)
        return run(*tree.unflatten(leaves))

    return refused


def _lower(ctx: mlir.LoweringRuleContext, *values: Any, sentence: Sentence) -> Any:
    raise ValueError(sentence(", ".join(ctx.module_context.platforms)))


@functools.cache
def _primitive() -> Any:
    """The identity of an array, made on first use: `jax.extend` loads Pallas."""
    from jax.extend.core import Primitive

    refuse = Primitive("jaxsparse_refuse")
    refuse.def_abstract_eval(lambda kind, sentence: kind)
    batching.defvectorized(refuse)
    mlir.register_lowering(refuse, _lower)
    return refuse
