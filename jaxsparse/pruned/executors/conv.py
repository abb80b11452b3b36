"""The executor of frozen weights on CUDA for windows of an image, NHWC or NCHW.

What it packs is in docs/packed.md.
"""

from typing import Any

from jaxsparse.core.device import shared_bytes
from jaxsparse.pruned.executor import Executor, Packed, Problem
from jaxsparse.pruned.executors.conv_tiles import VARIANTS, best, most_images, seen
from jaxsparse.pruned.executors.decode import built
from jaxsparse.pruned.executors.dense import DENSE_CUDA
from jaxsparse.pruned.layouts.conv import MOST_STRIDE, Layout, Tile
from jaxsparse.pruned.layouts.conv_windows import pack_windows
from jaxsparse.select.table import Measured

WINDOWS = 24
_CANDIDATES = 40
# Where it beat XLA's float32 in every measurement (docs/kernels/pruned_conv_gpu.md): the largest
# density (`won_density`), and how much dearer than estimated it may be: a share (`margin`), and
# microseconds (`margin_us`).
_MEASURED = Measured("pruned_windows", "cuda")


def _against(problem: Problem) -> str | None:
    if not built():
        return "this build has no CUDA kernels for it"
    if 0 in (*problem.x_shape, *problem.out_hw, problem.pattern.n_out):
        return "there is nothing to multiply"
    if problem.geometry is not None and max(problem.geometry.strides) > MOST_STRIDE:
        return f"it takes strides up to {MOST_STRIDE}, not {problem.geometry.strides}"
    window, _ = seen(problem)
    if most_images(window) < 1:
        return "its images have up to 2^31 - 1 elements each"
    if not best(problem):
        return "no tile of the image fits in shared memory"
    return None


def _cost(problem: Problem) -> float:
    return best(problem)[0][0]


def _pack(problem: Problem, candidate: Any) -> Packed:
    layout = _layout(problem, candidate) if candidate else best(problem)[0][1]
    pattern = problem.pattern
    neighbours, words = not problem.channels_first, layout.attributes()
    pack = pack_windows(pattern.indptr, pattern.taps_of(), layout, neighbours)
    return Packed(
        WINDOWS,
        starts=pack.starts,
        indices=pack.indices,
        rows=pack.rows,
        extra=pack.extra,
        order=pack.order,
        tile=words["tile"],
        block=words["block"],
        parts=words["parts"],
        code=words["code"],
    )


def _layout(problem: Problem, candidate: Any) -> Layout:
    """Of a candidate, which may come from a file."""
    values = tuple(candidate)
    if len(values) != 9 or not all(isinstance(v, int) and v > 0 for v in values):
        raise ValueError(f"candidate={candidate!r}: a tile of the windows executor has nine sizes")
    window, layout_of = seen(problem)
    layout = layout_of(Tile(*values))
    if (layout.tile.outputs, layout.tile.positions) not in VARIANTS:
        raise ValueError(f"candidate={candidate!r}: no kernel has its outputs and positions")
    if layout.tile.images > most_images(window):
        raise ValueError(f"candidate={candidate!r}: its images have too many elements")
    try:
        layout.check(shared_bytes())
    except ValueError as error:
        raise ValueError(f"candidate={candidate!r}: {error}") from error
    return layout


def _candidates(problem: Problem) -> list[Any]:
    return [None, *(layout.tile.key for _, layout in best(problem)[1:_CANDIDATES])]


def _won(problem: Problem) -> bool:
    """Against XLA in float32."""
    pattern = problem.pattern
    if problem.geometry is None or problem.dtype != "float32" or problem.precision != "highest":
        return False
    if pattern.density > _MEASURED("won_density") or pattern.groups > 1:
        return False
    expected = _MEASURED("margin") * _cost(problem) + _MEASURED("margin_us")
    return expected <= DENSE_CUDA.cost(problem)


CONV_EXECUTORS = (Executor("windows", "cuda", _against, _cost, _pack, _candidates, _won),)
