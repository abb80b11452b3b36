"""From packed masks to device-resident lists of active tiles."""

from jaxsparse.index.affected_index import affected_index as affected_index
from jaxsparse.index.portfolio import Portfolio as Portfolio
from jaxsparse.index.portfolio import portfolio_index as portfolio_index
from jaxsparse.index.tile_index import tile_index as tile_index
from jaxsparse.index.types import TileIndex as TileIndex

__all__ = ["Portfolio", "TileIndex", "affected_index", "portfolio_index", "tile_index"]
