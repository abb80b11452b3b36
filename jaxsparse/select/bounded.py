"""How `bounded_matmul` and `bounded_network` choose: the way that a GPU goes through the work, by
the sizes of a layer, and by how the layers of a network were packed.
"""

import dataclasses

from jaxsparse.core.device import MULTIPROCESSORS
from jaxsparse.select.choice import Chooser, Offer, Reason, register
from jaxsparse.select.problem import Problem
from jaxsparse.select.variants import also_runs

OP, NETWORK = "bounded_matmul", "bounded_network"
ROW, SLAB, COLUMN, CONVERGED = "row", "slab", "column", "converged"
#: The one way of the CPU's kernels: vectorised over images.
IMAGES = "images"
#: The ways through a network, as far as its bundles allow them: place is what handlers know it by.
BUNDLED = ("rows", "bundles", "panels", "panels from images")
#: A network of one layer without bundles is a layer.
SINGLE = "single layer"

# cuda/kernels: bounded_matmul.cu and its headers, where they have these names.
SLAB_OUTPUTS = 1024  # kSlab
MOST_SHARED = 96 << 10  # kMostShared
ROW_ENTRIES = 12  # kRowEntries: of an input, from which staging eight images is faster
COLUMN_IMAGES = 8  # kColumnImages
FEW_BLOCKS = MULTIPROCESSORS  # kFewBlocks
MANY_FEW = 128  # kManyFew
RUN = 32  # kRun: outputs whose notes share a byte


@dataclasses.dataclass(frozen=True)
class BoundedProblem:
    """One layer: images, inputs, outputs, distinct rows and their entries; the outputs that one
    code stands for, whether codes are recorded, and the `dataflow` that the call names, if any.
    """

    platform: str
    batch: int
    n_in: int
    n_out: int
    distinct: int
    entries: int
    segment: int
    record: bool
    dataflow: str | None = None

    @property
    def known(self) -> Problem:
        """What tuning tables know it by."""
        features: dict[str, float] = {
            "rows": self.batch,
            "depth": self.n_in,
            "outputs": self.n_out,
            "kept": self.entries,
        }
        return Problem(OP, self.platform, "float32", features)

    @property
    def slab(self) -> int:
        """Outputs of a slab: a multiple of the segment, so that a block decides its segments
        alone.
        """
        if self.n_out <= SLAB_OUTPUTS or not self.record:
            return min(self.n_out, SLAB_OUTPUTS)
        return min(-(-SLAB_OUTPUTS // self.segment) * self.segment, self.n_out)

    @property
    def few(self) -> bool:
        """Whether eight images a block would be fewer blocks than half of the multiprocessors."""
        slabs = -(-self.n_out // max(self.slab, 1))
        return (-(-self.batch // COLUMN_IMAGES) + 1) * slabs < FEW_BLOCKS // 2

    @property
    def prefers_row(self) -> bool:
        """Whether there are so few entries that staging eight images does not pay, and a row's
        values and notes fit in shared memory.
        """
        segments = -(-self.n_out // self.segment)
        nbytes = 4 * self.n_in + -(-self.n_out // RUN) + 2 * segments
        mean = -(-self.entries // max(self.distinct, 1))
        return nbytes <= MOST_SHARED and mean * self.n_out < ROW_ENTRIES * self.n_in


def candidates(problem: BoundedProblem) -> Offer:
    """The ways of the platform; the one that suits the sizes first, or the only one that the call
    names.
    """
    if problem.dataflow == CONVERGED:
        return Offer((CONVERGED,), Reason.ASKED)
    if problem.platform != "cuda":
        return Offer((IMAGES,))
    if problem.dataflow is not None:
        return Offer((problem.dataflow,), Reason.ASKED)
    by_row = problem.prefers_row and (problem.batch >= MANY_FEW or not problem.few)
    return Offer((ROW, COLUMN, SLAB) if by_row else (COLUMN, ROW, SLAB), Reason.SIZES)


def against(problem: BoundedProblem) -> dict[str, str]:
    """Name -> why that way does not take the problem."""
    if problem.dataflow is None:
        return {CONVERGED: f"it is asked for by dataflow={CONVERGED!r}"}
    others = (ROW, SLAB, COLUMN, CONVERGED) if problem.platform == "cuda" else (CONVERGED,)
    return {n: f"dataflow={problem.dataflow!r}" for n in others if n != problem.dataflow}


@dataclasses.dataclass(frozen=True)
class NetworkProblem:
    """A packed stack on a batch of images; `bundles` says how far a GPU may go with bundles (the
    place in `BUNDLED`).
    """

    platform: str
    batch: int
    n_in: int
    n_out: int
    depth: int
    widest: int
    bundles: int

    @property
    def known(self) -> Problem:
        """What tuning tables know it by."""
        features: dict[str, float] = {
            "rows": self.batch,
            "depth": self.n_in,
            "outputs": self.n_out,
            "layers": self.depth,
            "widest": self.widest,
        }
        return Problem(NETWORK, self.platform, "float32", features)


def network_candidates(problem: NetworkProblem) -> Offer:
    """The ways through the stack that its packing allows, the farthest first."""
    if problem.platform != "cuda":
        return Offer((IMAGES,))
    if problem.bundles:
        return Offer(BUNDLED[problem.bundles : 0 : -1], Reason.PACKED)
    return Offer((SINGLE if problem.depth == 1 else BUNDLED[0],), Reason.PACKED)


def network_against(problem: NetworkProblem) -> dict[str, str]:
    """Name -> why the stack cannot go that way."""
    if problem.platform != "cuda":
        return {}
    takes = network_candidates(problem).names
    whys = {
        **dict.fromkeys(BUNDLED, "its layers were not packed for it"),
        SINGLE: f"it has {problem.depth} layers"
        if problem.depth != 1
        else "its layer is in bundles",
    }
    return {name: why for name, why in whys.items() if name not in takes}


also_runs(OP, "cuda", ROW, SLAB, COLUMN, CONVERGED)
also_runs(OP, "cpu", IMAGES, CONVERGED)
also_runs(NETWORK, "cuda", *BUNDLED, SINGLE)
also_runs(NETWORK, "cpu", IMAGES)
CHOOSER = register(Chooser(OP, BoundedProblem, candidates, against, by_name=False))
NETWORK_CHOOSER = register(
    Chooser(NETWORK, NetworkProblem, network_candidates, network_against, by_name=False)
)
