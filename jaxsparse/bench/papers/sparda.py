"""The exhibits of SparDA: dynamic sparsity from mixtures of experts to sparse training."""

from collections.abc import Iterator

from jaxsparse.bench.papers.exhibit import Exhibit, Figure, Setting, speedups
from jaxsparse.bench.papers.sparda_attention import figure_6, figure_7
from jaxsparse.bench.papers.sparda_products import figure_8, figure_9, figure_10, figure_11
from jaxsparse.bench.papers.sparda_tiles import table_2
from jaxsparse.bench.products import moe
from jaxsparse.testing.product_cases import MOE_CASES, find


def figure_4(setting: Setting) -> Iterator[Figure]:
    """The layer of experts of the Switch transformer."""
    if setting.full:
        names = [f"switch_b{batch}_e{e}" for batch in (8, 32) for e in (8, 16, 32, 64, 128, 256)]
    else:
        names = ["quick_e4"]
    dtype = "float32"
    for case in find(MOE_CASES, names):
        found = moe.comparisons(case, dtype, setting.plan, moe.WHATS[:1])
        yield from speedups(found, setting, lambda c: "")


_INCLUDED = "the time of the mask's index included"
EXHIBITS = (
    Exhibit(
        "Figure 4",
        "Switch transformer, 8 to 256 experts",
        "a V100, the whole model: 1.1x to 4.5x the serial loop and 2.4x to 10.9x the padded batch "
        "(batch 32), 1.5x to 9.4x and 2.2x to 7.8x (batch 8)",
        "the layer of experts alone, routing included, times faster than each alternative",
        figure_4,
    ),
    Exhibit(
        "Figure 5",
        "BERT on batches of texts of different lengths",
        "a V100: 1.3x to 4.9x the padded batch",
        missing="`python examples/ragged_encoder.py` measures a whole encoder on texts that are "
        "available; GLUE's are not.",
    ),
    Exhibit(
        "Figure 6",
        "Longformer",
        "a V100, the whole model, 2,048 and 4,096 tokens: up to 1.9x PyTorch",
        "its attention alone (12 heads of 64): a window of 512 keys and 16 global tokens at places "
        f"that change from call to call; {_INCLUDED}",
        figure_6,
    ),
    Exhibit(
        "Figure 7",
        "Museformer",
        "a V100, the whole model: up to 2.5x PyTorch",
        "its attention alone (8 heads of 64): tokens attend to their bar, to the 8 related bars "
        f"whole, to one summary token of the others; {_INCLUDED}",
        figure_7,
    ),
    Exhibit(
        "Figure 8",
        "training under masks that change every step",
        "a V100, whole BERT: 1.5x to 3.0x PyTorch with blocks of 32x64, 2.4x with 32x1",
        "one product of the feed-forward part with the gradients of both operands, times faster "
        "than the dense product of the weight multiplied by its mask",
        figure_8,
    ),
    Exhibit(
        "Figure 9",
        "4096x4096x4096 by block size and share of zeros",
        "a V100, float32: 32x1 and 1x64 nearly as fast as 32x64",
        f'times faster than XLA\'s dense product in float32 (on a GPU at "highest"), {_INCLUDED}',
        figure_9,
    ),
    Exhibit(
        "Figure 10",
        "the same on tensor cores",
        "a V100, half precision: 32x1 close to 32x64",
        f"times faster than XLA's dense product in bfloat16 (on a CPU float32), {_INCLUDED}",
        figure_10,
    ),
    Exhibit(
        "Figure 11",
        "time to list the blocks of a 4096x4096 matrix",
        "a V100, times faster than the library named",
        "times faster than `jnp.nonzero` in the same jitted function",
        figure_11,
    ),
    Exhibit(
        "Table 2",
        "the tile chosen by granularity and share of zeros",
        "a V100, 4096x4096x4096: data tile, share of zeros after the cover, time",
        "the data tile that Algorithm 2 chooses among the strips of `masked_matmul`, at costs "
        "measured just before; the same figures, and the strip that is the fastest",
        table_2,
    ),
    Exhibit(
        "Section 5.1.4",
        "accuracy of blocks of 32x1 against 32x64",
        "MNLI and SST-2",
        missing="it needs GLUE and a pretrained BERT.",
    ),
)
