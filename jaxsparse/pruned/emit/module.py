"""Generated modules in the process's table of code: added when packed, dropped with their owner.

Only a digest travels in a call; the text never comes from a file, it is written anew from the
pattern and the values. So a call of generated code runs in this process only: what is lowered for
another one takes another executor, and a compiled function keeps its modules alive.
"""

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.interpreters import mlir

from jaxsparse.core.dtypes import DTYPES
from jaxsparse.ffi.partition import hold
from jaxsparse.ffi.register import module
from jaxsparse.pruned.emit.emitter import Code, digest_of
from jaxsparse.pruned.executor import Problem


class CodeModule:
    """Keeps modules in the table of the CUDA module while it lives.

    Args:
        codes: the generated code: modules that together make one product.
        problem: what it was generated for.

    Attributes:
        digest: names them in a call.
        nbytes: of the text.

    Raises:
        RuntimeError: when the CUDA module cannot be loaded, saying why.
    """

    def __init__(self, codes: Sequence[Code], problem: Problem) -> None:
        native, why = module("cuda")
        if native is None:
            raise RuntimeError(f"generated code is kept by the CUDA module: {why}")
        shape = codes[0].shape
        facts = [
            problem.pattern.n_in,
            problem.pattern.n_out,
            DTYPES[problem.dtype],
            DTYPES[problem.out_dtype],
            shape.row_tiles,
            shape.threads,
            shape.shared_bytes,
            shape.parts,
            int(codes[0].hopper),
        ]
        self.digest = digest_of(repr(facts).encode(), *(code.ptx for code in codes))
        texts = [(code.ptx, code.slices) for code in codes]
        self.nbytes = sum(len(text) for text, _ in texts)
        native.pruned_code_add(self.digest, texts, facts)
        weakref.finalize(self, native.pruned_code_drop, self.digest)


def in_this_process(
    run: Callable[..., jax.Array],
    owner: Any,
    elsewhere: Callable[..., jax.Array] | None,
    *arrays: jax.Array | None,
) -> jax.Array:
    """`run(*arrays)` where it is compiled for this process, which keeps `owner` alive as long as
    the compiled function; `elsewhere(*arrays)` where it is lowered for export, or for a platform
    that has no device here.

    Raises:
        ValueError: at lowering, where `elsewhere` is None and needed.
    """
    hold(owner)
    bodies = [f and jax.make_jaxpr(f)(*arrays) for f in (run, elsewhere)]
    leaves = jax.tree.leaves(arrays)
    (out,) = _primitive().bind(*leaves, run=bodies[0], elsewhere=bodies[1], owner=owner)
    return out


def _lower(
    ctx: mlir.LoweringRuleContext, *values: Any, run: Any, elsewhere: Any, owner: Any
) -> Any:
    around = ctx.module_context
    stays = any(map(_present, around.platforms)) and not around.lowering_parameters.for_export
    if stays:
        around.add_keepalive(owner)
    elif elsewhere is None:
        raise ValueError(
            "generated code runs in the process that generated it, and nowhere else: to export a "
            'function, or to lower it for another machine, trace it without variant="code" '
            '(or with js.config(variant="dense"))'
        )
    from jax.extend.core import jaxpr_as_fun

    body = jaxpr_as_fun(run if stays else elsewhere)
    return mlir.lower_fun(body, multiple_results=True)(ctx, *values)


def _present(platform: str) -> bool:
    """Whether JAX has a device of that platform here."""
    try:
        return bool(jax.devices(platform))
    except RuntimeError:
        return False


@functools.cache
def _primitive() -> Any:
    """The primitive of `in_this_process`, made on first use: `jax.extend` loads Pallas."""
    from jax.extend.core import Primitive, jaxpr_as_fun

    local = Primitive("jaxsparse_in_this_process")
    local.multiple_results = True
    local.def_impl(lambda *leaves, run, elsewhere, owner: jaxpr_as_fun(run)(*leaves))
    local.def_abstract_eval(lambda *types, run, elsewhere, owner: run.out_avals)
    mlir.register_lowering(local, _lower)
    return local
