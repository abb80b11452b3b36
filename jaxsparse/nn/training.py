"""`js.nn.pruned`: flax's layers on their plans while a model is trained. flax is imported when it
is called.
"""

import importlib
from contextlib import AbstractContextManager
from typing import Any


def pruned(model: object, module: object = None) -> AbstractContextManager[None]:
    """Inside the `with` block, the planned layers of a flax model take their kernels' values at the
    kept entries: the gradient of a kernel is zero elsewhere, and only kept weights are multiplied.

        model = js.prune_model(nnx.state(module, nnx.Param), 0.9).apply(module)  # nnx
        with js.nn.pruned(model):
            step(model, batch)

        plans = js.prune_model(params, 0.9)  # linen
        with js.nn.pruned(plans):
            params = step(plans.masked(params), batch)

    The plans are part of the jit key: a function that was compiled outside of the block is traced
    again inside.

    Args:
        model: what `js.prune_model(...).apply(module)` returned, linen's or nnx's; or what
            `js.prune_model` returned. An nnx model that was applied holds the values of its kernels
            after the block.
        module: the nnx module that the plans are for, where `model` is what `js.prune_model`
            returned; it has its own layers again after the block. Paths of a linen model count from
            the module that is called, whichever it is.

    Raises:
        TypeError, ValueError: for a model without plans, a path without a layer that takes its
            plan, or nnx's kernels that are traced.
    """
    late: Any = importlib.import_module("jaxsparse.nn.model.applied")  # it imports flax
    found: AbstractContextManager[None] = late.training(model, module)
    return found
