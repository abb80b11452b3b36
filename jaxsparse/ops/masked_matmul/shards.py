"""How a mesh splits a masked product: by its leading axes, by rows, by columns, and by the
contracted axis, over which the shards' results are summed. An axis is cut between blocks of every
mask on it.
"""

import math

import jax

from jaxsparse.ffi import Rule
from jaxsparse.ops.masked_matmul.params import MatmulParams

_NAMES = ("a", "b", "a_mask", "b_mask", "out_mask")
#: The axes of each operand and of the result.
_AXES = ("mk", "kn", "mk", "kn", "mn", "mn")


def mesh_rule(
    p: MatmulParams,
    a: jax.Array,
    b: jax.Array,
    *masks: jax.Array | None,
) -> Rule:
    """The rule of [L or 1, m, k] times [L or 1, k, n], with masks of blocks."""
    lists = max((v.shape[0] for v in (a, b, *masks) if v is not None), default=1)
    sizes = {"m": a.shape[1], "k": a.shape[2], "n": b.shape[2]}
    blocks: dict[str, list[int]] = {"m": [], "k": [], "n": []}
    for mask, block, axes in zip(masks, p.blocks, _AXES[2:5], strict=True):
        for name, size in zip(axes, block, strict=True) if mask is not None else ():
            blocks[name].append(size)
    # What a cut moves by: whole blocks of each mask.
    steps = {name: math.lcm(*given) for name, given in blocks.items()}
    whole = {name for name, step in steps.items() if sizes[name] % step}

    def factors(value: jax.Array | None, axes: str, block: tuple[int, int]) -> str:
        first = "l" if value is None or value.shape[0] == lists else "."
        sides = zip(axes, block, strict=True)
        return " ".join([first, *(_axis(n, steps[n] // side, whole) for n, side in sides)])

    each = [(1, 1), (1, 1), *p.blocks]
    given = zip((a, b, *masks), _AXES, each, strict=False)
    uneven = "its blocks do not fill it evenly, so every shard needs the whole axis"
    return Rule(
        "masked_matmul",
        tuple(factors(value, axes, block) for value, axes, block in given),
        (" ".join(["l", *(_axis(n, steps[n], whole) for n in "mn")]),),
        ("l", *(n for n in "mnk" if n not in whole)),
        _NAMES,
        from_end=True,
        dtype=p.out_dtype,
        why={"whole": uneven},
    )


def _axis(name: str, step: int, whole: set[str]) -> str:
    if name in whole:
        return "whole"
    return name if step == 1 else f"({name} {step})"
