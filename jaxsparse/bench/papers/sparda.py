"""The exhibits of SparDA: dynamic sparsity from mixtures of experts to sparse training."""

from collections.abc import Iterator

from jaxsparse.bench.papers.exhibit import (
    Exhibit,
    Figure,
    Setting,
    drawings,
    speedups,
    trained,
)
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
        names = ["small_b8_e8", "small_b8_e64"]
    dtype = "float32"
    for case in find(MOE_CASES, names):
        found = moe.comparisons(case, dtype, setting.plan, moe.WHATS[:1])
        yield from speedups(found, setting, memory=True)


_LONG = (
    "tokens/sparse_attention_nvidia_h200.md",
    "tokens/long_attention_amd_epyc_2_cores.md",
)
_PRODUCTS = ("products/masked_matmul_nvidia_h200.md",)
_INCLUDED = "the time of the mask's index included"
_MEMORY = "temporaries of one call by XLA's analysis (on a CPU without those of the kernels)"
EXHIBITS = (
    drawings("Figures 1 to 3, Table 1"),
    Exhibit(
        "Figure 4",
        "Switch transformer, 8 to 256 experts",
        "a V100, the whole model: 1.1x to 4.5x the serial loop and 2.4x to 10.9x the padded batch "
        "(batch 32), 1.5x to 9.4x and 2.2x to 7.8x (batch 8)",
        "the layer of experts alone, routing included, times faster than each alternative; "
        f"{_MEMORY}; the whole model: `python examples/switch_moe.py`",
        figure_4,
        published=("products/moe_nvidia_h200.md", "tokens/switch_moe_amd_epyc_2_cores.md"),
    ),
    Exhibit(
        "Figure 5",
        "BERT on batches of texts of different lengths",
        "a V100: 1.3x to 4.9x the padded batch",
        missing="GLUE's and IMDb's texts are not available. `python "
        "examples/ragged_distributions.py` measures whole encoders on lengths like theirs, `python "
        "examples/ragged_encoder.py` on texts that come with Python.",
        published=("tokens/ragged_nvidia_h200.md", "tokens/ragged_amd_epyc_2_cores.md"),
    ),
    Exhibit(
        "Figure 6",
        "Longformer",
        "a V100, the whole model, 2,048 and 4,096 tokens: up to 1.9x PyTorch",
        "its attention alone (12 heads of 64): a window of 512 keys and 16 global tokens at places "
        f"that change from call to call; {_INCLUDED}; {_MEMORY}; whole models: `python "
        "examples/long_attention.py`",
        figure_6,
        published=_LONG,
    ),
    Exhibit(
        "Figure 7",
        "Museformer",
        "a V100, the whole model: up to 2.5x PyTorch",
        "its attention alone (8 heads of 64): tokens attend to their bar, to the 8 related bars "
        f"whole, to one summary token of the others; {_INCLUDED}; {_MEMORY}; whole models: "
        "`python examples/long_attention.py`",
        figure_7,
        published=_LONG,
    ),
    Exhibit(
        "Figure 8",
        "training under masks that change every step",
        "a V100, whole BERT: 1.5x to 3.0x PyTorch with blocks of 32x64, 2.4x with 32x1",
        "one product of the feed-forward part with the gradients of both operands, times faster "
        f"than the dense product of the weight multiplied by its mask; {_MEMORY}; a whole encoder: "
        "`python examples/sparse_encoder.py`",
        figure_8,
        published=("products/sparse_training_nvidia_h200.md",),
    ),
    Exhibit(
        "Figure 9",
        "4096x4096x4096 by block size and share of zeros",
        "a V100, float32: 32x1 and 1x64 nearly as fast as 32x64",
        f'times faster than XLA\'s dense product in float32 (on a GPU at "highest"), {_INCLUDED}; '
        "1,024 instead of 4,096 on a CPU",
        figure_9,
        published=_PRODUCTS,
    ),
    Exhibit(
        "Figure 10",
        "the same on tensor cores",
        "a V100, half precision: 32x1 close to 32x64",
        f"times faster than XLA's dense product in bfloat16, {_INCLUDED}",
        figure_10,
        published=_PRODUCTS,
    ),
    Exhibit(
        "Figure 11",
        "time to list the blocks of a 4096x4096 matrix",
        "a V100, times faster than the library named",
        "times faster than `jnp.nonzero` in the same jitted function",
        figure_11,
        published=("images/tile_index_nvidia_h200.md",),
    ),
    Exhibit(
        "Table 2",
        "the tile chosen by granularity and share of zeros",
        "a V100, 4096x4096x4096: data tile, share of zeros after the cover, time; the search takes "
        "30 to 100 us",
        "the data tile that Algorithm 2 chooses among all tiles of `masked_matmul` that take the "
        "mask, the dense product among them, at costs measured just before; the same figures, the "
        "tile that is the fastest, what a call takes by default, which looks at the mask itself, "
        "and the time of the search on the host for one mask (1,024 instead of 4,096 on a CPU)",
        table_2,
        published=_PRODUCTS,
    ),
    trained(
        "Section 5.1.4",
        "accuracy of blocks of 32x1 against 32x64",
        "GLUE",
        "`python examples/sparse_encoder.py` compares accuracies on text that comes with Python.",
    ),
)
