"""The package's pytrees as data of `nnx` modules: an attribute that holds one is split, merged and
traced with the module's arrays. Run once `flax.nnx` is imported.
"""

from flax import nnx

from jaxsparse.bounded.activations import Activations
from jaxsparse.bounded.layer import Layer
from jaxsparse.bounded.packed import Network
from jaxsparse.index.blocks import BlockMask
from jaxsparse.index.kept_blocks import KeptBlocks
from jaxsparse.index.packing import TokenPacking
from jaxsparse.index.types import TileIndex
from jaxsparse.pruned.weight import PrunedWeight
from jaxsparse.recorder import Recorder

for _kind in (
    Activations,
    BlockMask,
    KeptBlocks,
    Layer,
    Network,
    PrunedWeight,
    Recorder,
    TileIndex,
    TokenPacking,
):
    nnx.register_data_type(_kind)
