"""What a random problem is, and what draws one."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Arrays = dict[str, np.ndarray]
#: How often each way of running a problem is drawn.
WAYS = {"values": 6, "eager": 1, "vmap": 3, "gradient": 4, "mesh": 2}


@dataclasses.dataclass
class Problem:
    """A call of one op, and how its operands are drawn.

    Attributes:
        text: the shapes and options.
        call: the op, of the operands by name. Its result is a tree of arrays.
        meaning: the same in numpy, of float64; whole numbers and bools are compared exactly.
        floats: name -> (shape, dtype) of the operands that gradients are taken for.
        depth: terms of a sum: rounding grows with it.
        data: draws the other operands: masks and whole numbers, which the call sees as traced.
        smooth: the result has a derivative everywhere, except at `edges`.
        edges: a function of the exact operands that returns arrays: where an entry crosses 0, the
            result has no derivative. Draws near an edge are left out; an entry that is exactly 0 is
            assumed to stay 0.
        split: operand -> the axis that a mesh splits; the first axis of each result is split, too.
            Without any, the problem does not run on a mesh.
        explicit: whether the op accepts operands that Explicit axes split; on Auto axes XLA gathers
            them.
        seen: a function of the result, on the host, that returns what is compared.
        unread: of the operands, the places whose values do not count: they are NaN now and then.
        wide: over `floats`: what the values are drawn as, in place of normal ones.
        loose: a factor of the error that is allowed.
        parts: functions of the exact operands that return another meaning: one part of the result's
            derivative is that of this meaning, and the rest may cancel it.
        compared: cases so far: how many results and gradients were compared with the meaning.
    """

    text: str
    call: Callable[..., Any]
    meaning: Callable[..., Any]
    floats: dict[str, tuple[tuple[int, ...], Any]]
    depth: int
    data: Callable[[np.random.Generator], Arrays] = lambda rng: {}
    smooth: bool = True
    edges: Callable[..., list[np.ndarray]] | None = None
    split: dict[str, int] = dataclasses.field(default_factory=dict)
    explicit: bool = True
    seen: Callable[[Any], Any] = lambda result: result
    unread: Callable[[Arrays], Arrays] = lambda operands: {}
    wide: Callable[[np.random.Generator, tuple[int, ...]], np.ndarray] | None = None
    loose: float = 1.0
    parts: tuple[Callable[..., Callable[..., Any]], ...] = ()
    compared: int = 0

    def draw(self, rng: np.random.Generator) -> tuple[Arrays, Arrays]:
        """Operands: those of floats, and the others."""
        values = self.wide or (lambda rng, shape: rng.standard_normal(shape) / 2)
        floats = {
            name: in_tf32(values(rng, shape).astype(np.float32)).astype(dtype)
            for name, (shape, dtype) in self.floats.items()
        }
        return floats, self.data(rng)


def in_tf32(values: np.ndarray) -> np.ndarray:
    """On a GPU, the nearest values that TF32 holds: its products round operands to 11 bits, which
    in a sum that cancels is more than any share of the result.
    """
    if jax.default_backend() != "gpu":
        return values
    bits = values.view(np.uint32) + np.uint32(1 << 12)
    return (bits & ~np.uint32((1 << 13) - 1)).view(np.float32)


class Draw:
    """Draws sizes and options.

    Attributes:
        rng: the generator.
        way: how the problem is to be run.
        each: what the sizes that a mesh may split are multiples of.
    """

    def __init__(self, rng: np.random.Generator):
        self.rng = rng
        names, often = zip(*WAYS.items(), strict=True)
        self.way = names[int(rng.choice(len(names), p=np.array(often) / sum(often)))]
        self.each = 4 if self.way == "mesh" else 1

    def size(self, most: int) -> int:
        """1 to `most`, small ones more often."""
        return int(np.exp(self.rng.uniform(0, np.log(most + 0.999))))

    def lead(self, most: int) -> int:
        """The size of an axis that a mesh splits."""
        return self.each * self.size(most)

    def pick(self, *values: Any) -> Any:
        """One of them."""
        return values[int(self.rng.integers(len(values)))]

    def chance(self, share: float) -> bool:
        """True so often."""
        return bool(self.rng.random() < share)

    def dtype(self) -> Any:
        """Of the floats; float32 half of the time."""
        return jnp.dtype(self.pick("float32", "float32", "bfloat16", "float16"))

    def pads(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Of a window, explicit ones."""
        (top, bottom), (left, right) = ((int(n) for n in self.rng.integers(0, 4, 2)) for _ in "hw")
        return (top, bottom), (left, right)

    def pair(self, most: int) -> tuple[int, int]:
        """Of height and width."""
        return self.size(most), self.size(most)

    def seed(self) -> int:
        """For a policy or a table."""
        return int(self.rng.integers(2**31))


def bits(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """A mask: of any density, none and all now and then; in one half of them, blobs."""
    share = (0.0, 0.05, 0.3, 0.7, 1.0, float(rng.random()))[int(rng.integers(6))]
    mask = rng.random(shape) < share
    if len(shape) == 3 and mask.size and rng.random() < 0.5:
        coarse = rng.random((shape[0], -(-shape[1] // 5), -(-shape[2] // 5))) < share
        mask = coarse.repeat(5, 1).repeat(5, 2)[:, : shape[1], : shape[2]]
    return mask
