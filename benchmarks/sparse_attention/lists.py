"""The section "lists": the time to build a mask from a bool for each block, or from a function."""

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import torch_sides as rivals
from problem import COPY_RATE

import jaxsparse as js

if TYPE_CHECKING:
    from table import Bench

CALLS, BLOCK, SIDE = 6, 128, 64
CASES = ((32, 512, 0.1), (32, 512, 0.25), (32, 512, 0.5), (1, 64, 0.1), (1, 512, 0.1))


def _from_bits(bits: jax.Array) -> js.BlockMask:
    rows, columns = bits.shape[2:]
    return js.BlockMask.from_block_bits(bits, BLOCK, BLOCK * rows, BLOCK * columns)


def _of_function(bits: jax.Array) -> js.BlockMask:
    size = BLOCK * bits.shape[0]

    def holds(b: Any, h: Any, q: Any, kv: Any) -> Any:
        return bits[q // BLOCK, kv // BLOCK]

    return js.create_block_mask(holds, 1, 1, size, size, BLOCK, partial_capacity=0)


def _bits(heads: int, blocks: int, kept: float, seed: int) -> jax.Array:
    return jax.random.uniform(jax.random.key(seed), (1, heads, blocks, blocks)) < kept


def _is(mask: js.BlockMask, bits: jax.Array) -> bool:
    """Whether both lists of a mask hold exactly the blocks of `bits`, in ascending order."""
    same = mask.block_bits() == bits
    for counts, blocks, want in (
        (mask.kv_counts, mask.kv_blocks, bits),
        (mask.q_counts, mask.q_blocks, bits.swapaxes(2, 3)),
    ):
        number = jnp.cumsum(want, -1) - 1
        listed = jnp.take_along_axis(blocks, jnp.maximum(number, 0), -1)
        same &= ~want | (listed == jnp.arange(want.shape[-1]))
        same &= (counts == want.sum(-1))[..., None]
    return bool(same.all())


def list_lines(bench: "Bench") -> list[str]:
    """The lines of the two tables."""
    lines = ["| from bits: heads x rows x columns | kept | us | floor, us |", "|---" * 4 + "|"]
    for heads, blocks, kept in CASES:
        lines.append(_lists_row(bench, heads, blocks, kept))
        print(lines[-1], flush=True)
    return [*lines, "", *_functions(bench)]


def _lists_row(bench: "Bench", heads: int, blocks: int, kept: float) -> str:
    bits = [_bits(heads, blocks, kept, seed) for seed in range(CALLS)]
    makers = {"": lambda: bench.jax_side(lambda: bench.chains.made(_from_bits, bits), CALLS)}
    us = bench.measure(makers, lambda got: 0.0 if _is(got[0], bits[0]) else float("inf"), 0.0)[""]
    size = heads * blocks**2
    floor = (size + 16 * kept * size + 8 * heads * blocks) / COPY_RATE
    shown = us if isinstance(us, str) else f"{us:.1f}"
    return f"| {heads} x {blocks} x {blocks} | {kept:.0%} | {shown} | {floor:.1f} |"


def _functions(bench: "Bench") -> list[str]:
    """A mask of 8192 x 8192 from a function of positions that reads bits of blocks."""
    bits = [_bits(1, SIDE, 0.1, seed)[0, 0] for seed in range(CALLS)]
    makers: dict[str, Any] = {
        "jaxsparse": lambda: bench.jax_side(lambda: bench.chains.made(_of_function, bits), CALLS)
    }
    if bench.with_flex:
        makers["Flex"] = lambda: bench.torch_side(rivals.Masks(bits[0], BLOCK, CALLS))

    def check(got: Any) -> float:
        blocks = got[0].block_bits() if isinstance(got[0], js.BlockMask) else got[0]
        return 0.0 if bool((blocks == bits[0]).all()) else float("inf")

    found = bench.measure(makers, check, 0.0)
    shown = {name: us if isinstance(us, str) else f"{us:.0f}" for name, us in found.items()}
    lines = [f"| a function of positions, {SIDE * BLOCK} x {SIDE * BLOCK} | us |", "|---|---|"]
    lines += [f"| {name} | {us} |" for name, us in shown.items()]
    print("\n".join(lines), flush=True)
    return lines
