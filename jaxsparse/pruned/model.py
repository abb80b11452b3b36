"""`js.prune_model`: a whole parameter tree pruned, every eligible layer planned, and said why."""

import contextlib
import dataclasses
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np

from jaxsparse.ffi.platform import reason_against
from jaxsparse.ops.checks import FLOATS
from jaxsparse.pruned.checks import check_concrete
from jaxsparse.pruned.executor import Problem
from jaxsparse.pruned.executors import executor, ranked
from jaxsparse.pruned.files import check, decode, encode, write
from jaxsparse.pruned.inspect import inspect
from jaxsparse.pruned.pattern import Pattern
from jaxsparse.pruned.prune import magnitude
from jaxsparse.pruned.weight import PrunedWeight
from jaxsparse.select.select import home_platform

INDEX = "plans.json"


class LayerReport(msgspec.Struct, frozen=True):
    """What was done with one leaf of the tree, and why."""

    path: str
    shape: tuple[int, ...]
    planned: bool
    why: str


class Index(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file that names the plans of a directory: plan i is the file `i.plan`, whose SHA-256 is
    `digests[i]`; `sha256` is that of the index itself, where it is empty.
    """

    paths: tuple[str, ...]
    digests: tuple[str, ...]
    report: tuple[LayerReport, ...]
    positions: int
    sha256: str

    def signed(self) -> "Index":
        """The index with its own digest."""
        bare = msgspec.structs.replace(self, sha256="")
        digest = hashlib.sha256(msgspec.json.encode(bare)).hexdigest()
        return msgspec.structs.replace(self, sha256=digest)


@dataclasses.dataclass(frozen=True)
class PrunedModel:
    """The plans of a model's layers, by path ("block/conv1/kernel"), and a report, whose estimates
    are for `positions`; print it.

    `model[path]` is a plan. `masked(params)` is the tree to fine-tune, `values(params)` the plans
    with the values of a tree after that; `save` and `load` a folder.
    """

    plans: dict[str, PrunedWeight]
    report: tuple[LayerReport, ...]
    positions: int

    def __getitem__(self, path: str) -> PrunedWeight:
        return self.plans[path]

    def __str__(self) -> str:
        width = max((len(r.path) for r in self.report), default=0)
        lines = [
            f"{r.path:{width}}  {list(r.shape)!s:18} {'planned' if r.planned else 'left':8} {r.why}"
            for r in self.report
        ]
        if self.plans:
            lines.insert(0, f"estimates for {self.positions} rows, or pixels of a result")
        return "\n".join(lines) or "no parameters"

    def masked(self, params: Any) -> Any:
        """`params` with zeros where a planned weight is pruned: the tree to fine-tune. (Of planned
        kernels, float64 becomes float32.)

        Raises:
            TypeError, ValueError: when a planned weight is not in `params`, or is no array of the
                plan's shape, naming its path.
        """
        self._check_paths(params)
        return jax.tree.unflatten(
            jax.tree.structure(params),
            [
                self._valued(name, leaf).to_dense() if name in self.plans else leaf
                for name, leaf in _named(params)
            ],
        )

    def values(self, params: Any) -> dict[str, PrunedWeight]:
        """The plans with the values that `params` has now: after training.

        Raises:
            TypeError, ValueError: as `masked`.
        """
        self._check_paths(params)
        return {n: self._valued(n, leaf) for n, leaf in _named(params) if n in self.plans}

    def _valued(self, name: str, leaf: Any) -> PrunedWeight:
        with _naming(name):
            return self.plans[name].from_dense(leaf)

    def _check_paths(self, params: Any) -> None:
        there = {name for name, _ in _named(params)}
        missing = sorted(set(self.plans) - there)
        if missing:
            raise ValueError(
                f"params has no {missing[0]!r}, which is planned (it has "
                f"{', '.join(sorted(there)[:3]) or 'nothing'}...): pass the tree that was pruned"
            )

    def save(self, folder: str | Path) -> None:
        """Write every plan and the report into `folder`, in place of those of an earlier `save`.
        Plans of two models are never mixed: `load` refuses what a `save` that was cut off left.

        Raises:
            ValueError: before anything is written, for values that `load` would refuse (NaN, Inf),
                naming their path.
        """
        for name, plan in self.plans.items():
            with _naming(name):
                check(plan)
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        digests = []
        for i, plan in enumerate(self.plans.values()):
            data = encode(plan)
            write(folder / f"{i}.plan", data)
            digests.append(hashlib.sha256(data).hexdigest())
        index = Index(tuple(self.plans), tuple(digests), self.report, self.positions, "")
        data = msgspec.json.encode(index.signed())
        write(folder / INDEX, msgspec.json.format(data, indent=1))
        i = len(digests)
        while (folder / f"{i}.plan").is_file():  # of an earlier save
            (folder / f"{i}.plan").unlink()
            i += 1

    @staticmethod
    def load(folder: str | Path) -> "PrunedModel":
        """Read what `save` wrote. Nothing in the folder is ever executed.

        Raises:
            ValueError: when the index or a plan is missing, truncated, altered or exchanged, or
                the folder is of another version.
        """
        folder = Path(folder)
        try:
            index = msgspec.json.decode((folder / INDEX).read_bytes(), type=Index)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ValueError(
                f"{folder / INDEX} is no index of plans of this version: {error}"
            ) from error
        if not len(index.paths) == len(set(index.paths)) == len(index.digests):
            raise ValueError(f"{folder / INDEX} is no index of plans: a digest for every path")
        if index != index.signed():
            raise ValueError(f"{folder / INDEX} is altered: it does not have the digest it names")
        plans = {}
        for i, (path, digest) in enumerate(zip(index.paths, index.digests, strict=True)):
            file = folder / f"{i}.plan"
            if not file.is_file():
                raise ValueError(f"{file}, the plan of {path!r}, is missing")
            data = file.read_bytes()
            if hashlib.sha256(data).hexdigest() != digest:
                raise ValueError(f"{file} is not the plan of {path!r} that was saved")
            with _naming(str(file)):
                plans[path] = decode(data)
        return PrunedModel(plans, index.report, index.positions)


def prune_model(
    params: Any,
    sparsity: float | Mapping[str, float] | Callable[[str, Any], float],
    *,
    positions: int = 256,
    smallest: int = 4096,
    groups: Mapping[str, int] | None = None,
) -> PrunedModel:
    """Prune every eligible kernel of a parameter tree by magnitude, and plan it.

    Eligible is a leaf called "kernel" with two axes (a Dense) or four (a 2-D Conv) of at least
    `smallest` weights, float32, bfloat16 or float16 (float64 becomes float32); of a leaf that is
    not, the report says why.

    Args:
        params: flax parameters (linen's dicts, nnx's state) or any pytree of arrays.
        sparsity: share of each kernel to prune: a number, a number for each path (others are left),
            or a function of (path, kernel).
        positions: rows of a product, or pixels of a convolution's result, that the estimates of
            the report are for.
        smallest: kernels with fewer weights are left dense.
        groups: feature_group_count of each grouped convolution, by path; 1 for the others, which
            the report says.

    Returns:
        A `PrunedModel`: plans by path, and the report.

    Raises:
        TypeError, ValueError: for a sparsity that is no number from 0 to 1, for `positions` or
            `smallest` that are no ints of 1 or 0 and more, for a path in `sparsity` or `groups`
            that no leaf has; for two leaves of one path; for NaN in a kernel that is planned or one
            that is traced, naming its path.
    """
    _check_options(params, sparsity, positions, smallest, groups)
    plans: dict[str, PrunedWeight] = {}
    report = []
    for name, leaf in _named(params):
        shape = tuple(getattr(leaf, "shape", ()))
        reason = _ineligible(name, leaf, smallest)
        share = None if reason else _share(sparsity, name, leaf)
        if share is None:
            report.append(LayerReport(name, shape, False, reason or "no sparsity is named for it"))
            continue
        with _naming(name):
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
    known = {name for name, _ in _named(params)}
    shares = sparsity if isinstance(sparsity, Mapping) else {}
    for name, given in (("sparsity", shares), ("groups", groups or {})):
        unknown = sorted(set(given) - known)
        if unknown:
            raise ValueError(f"{name} names {unknown[0]!r}; no parameter has this path")
    for path, share in shares.items():
        _checked_share(share, f"sparsity[{path!r}]")
    if not isinstance(sparsity, Mapping) and not callable(sparsity):
        planned = (f"{n}: " for n, leaf in _named(params) if not _ineligible(n, leaf, smallest))
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


@contextlib.contextmanager
def _naming(what: str) -> Iterator[None]:
    """Errors inside of the `with` block say what they are about."""
    try:
        yield
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{what}: {error}") from error


def _named(params: Any) -> list[tuple[str, Any]]:
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
