"""`PrunedModel`: the plans of a model's layers, and the folder that they are kept in."""

import dataclasses
import hashlib
from pathlib import Path
from typing import Any, TypeVar

import jax
import msgspec

from jaxsparse.pruned import model as package
from jaxsparse.pruned.files import check, decode, encode, write
from jaxsparse.pruned.model.tree import named, naming
from jaxsparse.pruned.weight import PrunedWeight

INDEX = "plans.json"

#: A pytree of arrays: flax's dicts or nnx's state, or any other.
Tree = TypeVar("Tree")

#: A flax module, linen's or nnx's.
Module = TypeVar("Module")


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


@dataclasses.dataclass(frozen=True, repr=False)
class PrunedModel:
    """The plans of a model's layers, by path ("block/conv1/kernel"), and a report, whose estimates
    are for `positions`; print it.

    `model[path]` is a plan. `masked(params)` is the tree to fine-tune, `values(params)` the plans
    with the values of a tree after that, `apply(module)` a flax model that runs on the plans;
    `save` and `load` a folder.
    """

    plans: dict[str, PrunedWeight]
    report: tuple[LayerReport, ...]
    positions: int

    def __getitem__(self, path: str) -> PrunedWeight:
        if path not in self.plans:
            raise KeyError(f"no plan of {path!r}; there are {', '.join(self.plans) or 'none'}")
        return self.plans[path]

    def __repr__(self) -> str:
        return f"PrunedModel({len(self.plans)} plans of {len(self.report)} leaves: print it)"

    def __str__(self) -> str:
        width = max((len(r.path) for r in self.report), default=0)
        lines = [
            f"{r.path:{width}}  {list(r.shape)!s:18} {'planned' if r.planned else 'left':8} {r.why}"
            for r in self.report
        ]
        if self.plans:
            lines.insert(0, f"estimates for {self.positions} rows, or pixels of a result")
        return "\n".join(lines) or "no parameters"

    def masked(self, params: Tree) -> Tree:
        """`params` with zeros where a planned weight is pruned: the tree to fine-tune. (Of planned
        kernels, float64 becomes float32.)

        Raises:
            TypeError, ValueError: when a planned weight is not in `params`, or is not an array of
                the plan's shape, naming its path.
        """
        self.check_paths(params)
        return jax.tree.unflatten(
            jax.tree.structure(params),
            [
                self._valued(name, leaf).to_dense() if name in self.plans else leaf
                for name, leaf in named(params)
            ],
        )

    def values(self, params: object) -> dict[str, PrunedWeight]:
        """The plans with the values that `params` has now: after training.

        Raises:
            TypeError, ValueError: as `masked`.
        """
        self.check_paths(params)
        return {n: self._valued(n, leaf) for n, leaf in named(params) if n in self.plans}

    def apply(self, module: Module) -> Module:
        """A model that runs on the plans: `module` whose planned Dense (nnx: Linear) and Conv
        layers multiply by the kept weights; nothing else changes. It is for inference: the plans'
        values are constants of what is compiled. To train, see `js.nn.pruned`.

        Args:
            module: a linen module that is not bound, or an nnx module. The result of a linen module
                takes the same variables in `init`, `apply` and calls, and reads only the shapes of
                planned kernels. That of an nnx module is a copy, whose planned kernels have zeros.

        Returns:
            A module of the same kind.

        Raises:
            TypeError, ValueError: when `module` is not a flax module; for a plan whose path does
                not lead to a Dense, Linear or Conv layer of its shape and groups, naming the path
                (linen: when it is called).
        """
        return package.applied(self, module)

    def _valued(self, name: str, leaf: Any) -> PrunedWeight:
        with naming(name):
            return self.plans[name].from_dense(leaf)

    def check_paths(self, params: object) -> None:
        """Whether every plan is of a leaf of `params`.

        Raises:
            ValueError: naming a path that is not there.
        """
        there = {name for name, _ in named(params)}
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
            with naming(name):
                check(plan.plan, plan.values)
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        digests = []
        for i, plan in enumerate(self.plans.values()):
            data = encode(plan.plan, plan.values)
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
                f"{folder / INDEX} is not an index of plans of this version: {error}"
            ) from error
        if not len(index.paths) == len(set(index.paths)) == len(index.digests):
            raise ValueError(f"{folder / INDEX} is not an index of plans: a digest for every path")
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
            with naming(str(file)):
                plan, values = decode(data)
                plans[path] = PrunedWeight(values, plan)
        return PrunedModel(plans, index.report, index.positions)
