"""An nnx model on its plans: they stand in the attributes of its Linear and Conv layers."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import jax
from flax import nnx

from jaxsparse.core.checks import is_traced
from jaxsparse.nn.model.injections import Injection, argument, frozen, layers_of, trained
from jaxsparse.pruned.model.model import PrunedModel
from jaxsparse.pruned.weight import PrunedWeight

_TAKES = {"matmul": (nnx.Linear, nnx.LinearGeneral), "conv": (nnx.Conv,)}
_PLAN = "pruned"  # of a function that was put into a layer

Layers = dict[str, tuple[Any, PrunedWeight]]


def apply_nnx(model: PrunedModel, module: Any) -> Any:
    """A copy of the module with the plans in its layers, and zeros in their kernels.

    Raises:
        TypeError, ValueError: as `layers_with_plans`.
    """
    copy = nnx.clone(module)
    for layer, plan in layers_with_plans(copy, layers_of(model.plans)).values():
        freeze(layer, plan)
    return copy


def freeze(layer: Any, plan: PrunedWeight) -> None:
    """Put the plan's values into the layer: as constants, and into its kernel with zeros."""
    layer.kernel[...] = plan.to_dense().astype(layer.kernel.dtype)
    inject(layer, frozen(plan))


def inject(layer: Any, injection: Injection) -> None:
    """The plan's function becomes the layer's."""
    function = injection.function
    setattr(function, _PLAN, injection.pruned)
    setattr(layer, injection.name, function)


def layers_with_plans(module: Any, plans: Mapping[str, PrunedWeight] | None = None) -> Layers:
    """The layers at the paths of `plans` with them; without `plans`, those that hold one.

    Raises:
        TypeError, ValueError: for a path without a layer that takes the plan, naming it.
    """
    modules = {"/".join(map(str, path)): found for path, found in nnx.iter_modules(module)}
    if plans is None:
        held = {path: _plan_in(layer) for path, layer in modules.items()}
        return {path: (modules[path], plan) for path, plan in held.items() if plan is not None}
    for path, plan in plans.items():
        _check_layer(path, modules.get(path), plan)
    return {path: (modules[path], plan) for path, plan in plans.items()}


def _plan_in(layer: Any) -> PrunedWeight | None:
    functions = (getattr(layer, name, None) for name in ("dot_general", "conv_general_dilated"))
    plans = (getattr(function, _PLAN, None) for function in functions)
    return next((plan for plan in plans if isinstance(plan, PrunedWeight)), None)


def _check_layer(path: str, layer: Any, plan: PrunedWeight) -> None:
    takes = _TAKES[plan.kind]
    if not isinstance(layer, takes) or type(layer).__module__.startswith("jaxsparse."):
        came = "there is no module" if layer is None else f"this layer is a {type(layer).__name__}"
        names = " or ".join(f"nnx.{kind.__name__}" for kind in takes)
        raise TypeError(
            f"{path}: a plan for {plan.kind} goes into a {names}; {came}: plan the state of this "
            "module, and leave such a layer out of js.prune_model's sparsity"
        )
    if tuple(layer.kernel.shape) != plan.shape:
        raise ValueError(
            f"{path}: the kernel has shape {tuple(layer.kernel.shape)}; the plan is of {plan.shape}"
        )
    groups = getattr(layer, "feature_group_count", 1)
    if plan.kind == "conv" and groups != plan.pattern.groups:
        raise ValueError(
            f"{path}: feature_group_count={groups}; the plan has {plan.pattern.groups} groups: "
            f"js.prune_model(..., groups={{{path + '/kernel'!r}: {groups}}})"
        )


@contextlib.contextmanager
def swapped(layers: Layers, *, thaw: bool) -> Iterator[None]:
    """Inside, the layers take their kernels' values. `thaw`: afterwards the plans hold those.

    Raises:
        TypeError: when the kernels are traced.
    """
    if any(is_traced(jax.tree.leaves(nnx.state(layer))) for layer, _ in layers.values()):
        raise TypeError("model is traced: enter js.nn.pruned outside of nnx.jit and nnx.grad")
    before = {path: getattr(layer, argument(plan)) for path, (layer, plan) in layers.items()}
    for layer, plan in layers.values():
        inject(layer, trained(plan.plan))
    try:
        yield
    finally:
        for path, (layer, plan) in layers.items():
            if thaw:
                freeze(layer, plan.from_dense(layer.kernel[...]))
            else:
                setattr(layer, argument(plan), before[path])
