"""A pruned model that runs: `PrunedModel.apply`, and `js.nn.pruned` while one is trained. Plans go
into flax's own layers, by path.
"""

import contextlib
from collections.abc import Iterator
from typing import Any, TypeVar

from flax import linen, nnx

from jaxsparse.nn.model.injections import layers_of, token, trained, training_plans
from jaxsparse.nn.model.linen import apply_linen, intercepting, plans_of
from jaxsparse.nn.model.nnx import apply_nnx, layers_with_plans, swapped
from jaxsparse.pruned.model.model import PrunedModel

Model = TypeVar("Model")


def applied(model: PrunedModel, module: Model) -> Model:
    """See `PrunedModel.apply`."""
    if isinstance(module, linen.Module):
        return apply_linen(model, module)
    if isinstance(module, nnx.Module):
        return apply_nnx(model, module)
    raise TypeError(
        f"module must be a flax linen.Module or nnx.Module, not {type(module).__name__}; "
        "for other models see model.masked(params) and model.values(params)"
    )


@contextlib.contextmanager
def training(model: Any, module: Any = None) -> Iterator[None]:
    """See `js.nn.pruned`."""
    with contextlib.ExitStack() as stack:
        if isinstance(model, PrunedModel) and isinstance(module, nnx.Module):
            plans = layers_of(model.plans)
            stack.enter_context(swapped(layers_with_plans(module, plans), thaw=False))
        elif isinstance(model, nnx.Module) and module is None:
            found = layers_with_plans(model)
            if not found:
                raise ValueError(
                    "model has no layer with a plan: pass what js.prune_model(...).apply(module) "
                    "returned, or js.nn.pruned(plans, module)"
                )
            plans = {path: plan for path, (_, plan) in found.items()}
            stack.enter_context(swapped(found, thaw=True))
        elif isinstance(model, (PrunedModel, linen.Module)):
            if module is not None and not isinstance(module, linen.Module):
                raise TypeError(f"module must be a flax module, not {type(module).__name__}")
            plans = layers_of(model.plans) if isinstance(model, PrunedModel) else plans_of(model)
            functions = {path: trained(plan.plan) for path, plan in plans.items()}
            stack.enter_context(intercepting(functions))
        else:
            raise TypeError(
                "model must be what js.prune_model or its .apply(module) returned, not "
                f"{type(model).__name__}"
            )
        key = tuple(sorted(((path, p.plan) for path, p in plans.items()), key=lambda item: item[0]))
        stack.enter_context(training_plans(token(key)))
        yield
