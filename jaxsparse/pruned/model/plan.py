"""`js.prune_model`: a whole parameter tree pruned, every eligible layer planned, and said why."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from jaxsparse.core.device import home_platform
from jaxsparse.core.dtypes import FLOATS
from jaxsparse.ffi.platform import reason_against
from jaxsparse.pruned.checks import check_concrete
from jaxsparse.pruned.executor import Problem
from jaxsparse.pruned.executors.choice import executor, ranked
from jaxsparse.pruned.inspect import inspect
from jaxsparse.pruned.model.model import LayerReport, PrunedModel
from jaxsparse.pruned.model.tree import named, naming
from jaxsparse.pruned.pattern import Pattern
from jaxsparse.pruned.prune import magnitude
from jaxsparse.pruned.weight import PrunedWeight


def prune_model(
    params: object,
    sparsity: float | Mapping[str, float] | Callable[[str, jax.Array], float],
    *,
    positions: int = 256,
    smallest: int = 4096,
    groups: Mapping[str, int] | None = None,
) -> PrunedModel:
    """Prune every eligible kernel of a parameter tree by magnitude, and plan it.

    A leaf is eligible if it is called "kernel", has two axes (a Dense) or four (a 2-D Conv) and at
    least `smallest` weights, in float32, bfloat16 or float16 (float64 becomes float32). For every
    other leaf the report says why it is not.

    Args:
        params: flax parameters (linen's dicts, nnx's state) or any pytree of arrays.
        sparsity: share of each kernel to prune: a number, a number for each path (others stay
            dense), or a function of (path, kernel).
        positions: rows of a product, or pixels of a convolution's result, that the estimates of
            the report are for.
        smallest: kernels with fewer weights are left dense.
        groups: feature_group_count of each grouped convolution, by path; for the others 1 is
            assumed, as the report says.

    Returns:
        A `PrunedModel`: plans by path, and the report.

    Raises:
        TypeError, ValueError: for a sparsity that is not a number from 0 to 1, for `positions` or
            `smallest` that are not ints of 1 or 0 and more, for a path in `sparsity` or
            `groups` that no leaf has; for two leaves of one path; for NaN in a kernel that is
            planned or one that is traced, naming its path.
    """
    _check_options(params, sparsity, positions, smallest, groups)
    plans: dict[str, PrunedWeight] = {}
    report = []
    for name, leaf in named(params):
        shape = tuple(getattr(leaf, "shape", ()))
        reason = _ineligible(name, leaf, smallest)
        share = None if reason else _share(sparsity, name, leaf)
        if share is None:
            report.append(LayerReport(name, shape, False, reason or "no sparsity is named for it"))
            continue
        with naming(name):
            check_concrete("the kernel", leaf)
            kernel = np.asarray(leaf)
            kept = magnitude(kernel, share)
            kind = "matmul" if kernel.ndim == 2 else "conv"
            plan = inspect(kernel, kind=kind, mask=kept, groups=(groups or {}).get(name, 1))
        plans[name] = plan
        report.append(LayerReport(name, shape, True, describe(plan, positions)))
    return PrunedModel(plans, tuple(report), int(positions))


def describe(plan: PrunedWeight, positions: int) -> str:
    """What would run this plan here, and the estimates that say so."""
    platform = home_platform()
    p = plan.pattern
    what = f"{100 * plan.sparsity:.1f} % pruned"
    if plan.kind == "conv":
        what += f", {p.groups} {'group' if p.groups == 1 else 'groups'}"
    why = reason_against(platform, ("cuda", "cpu", "reference"), device=False)
    if why is not None:
        return f"{what}; runs as reference: {why}"
    flat = Pattern(p.n_in, p.n_out, p.indptr, p.indices)
    dtype = plan.values.dtype.name
    problem = Problem(flat, platform, (positions, p.n_in), dtype, dtype, "default")
    names = ranked(problem)
    costs = [f"{n} {executor(platform, n).cost(problem):.0f} us" for n in names]
    return f"{what}, {names[0]} on {platform} (estimates: {', '.join(costs)})"


def _ineligible(name: str, leaf: Any, smallest: int) -> str | None:
    if not hasattr(leaf, "shape") or name.rpartition("/")[2] != "kernel":
        return "not a kernel"
    if len(leaf.shape) not in (2, 4):
        return f"{len(leaf.shape)} axes; a plan takes 2 or 4"
    if np.dtype(leaf.dtype) not in (*FLOATS, np.float64):
        return f"dtype {leaf.dtype}"
    size = int(np.prod(leaf.shape))
    if size == 0:
        return "no weights"
    if size < smallest:
        return f"{size} weights, fewer than {smallest}"
    return None


def _check_options(params: Any, sparsity: Any, positions: Any, smallest: Any, groups: Any) -> None:
    for name, given, least in (("positions", positions, 1), ("smallest", smallest, 0)):
        if isinstance(given, bool) or not isinstance(given, (int, np.integer)) or given < least:
            raise ValueError(f"{name}={given!r}; it takes an int of {least} or more")
    known = {name for name, _ in named(params)}
    shares = sparsity if isinstance(sparsity, Mapping) else {}
    for name, given in (("sparsity", shares), ("groups", groups or {})):
        unknown = sorted(set(given) - known)
        if unknown:
            raise ValueError(f"{name} names {unknown[0]!r}; no parameter has this path")
    for path, share in shares.items():
        _checked_share(share, f"sparsity[{path!r}]")
    if not isinstance(sparsity, Mapping) and not callable(sparsity):
        planned = (f"{n}: " for n, leaf in named(params) if not _ineligible(n, leaf, smallest))
        _checked_share(sparsity, f"{next(planned, '')}sparsity")


def _checked_share(share: Any, name: str) -> float:
    if isinstance(share, (bool, str)) or not hasattr(share, "__float__"):
        raise TypeError(f"{name}={share!r}; it takes a number from 0 to 1")
    if not 0.0 <= float(share) <= 1.0:
        raise ValueError(f"{name}={share!r}; it takes a number from 0 to 1")
    return float(share)


def _share(sparsity: Any, name: str, leaf: Any) -> float | None:
    if isinstance(sparsity, Mapping):
        found: float | None = sparsity.get(name)
        return found
    if callable(sparsity):
        return _checked_share(sparsity(name, leaf), f"sparsity of {name!r}")
    return float(sparsity)
