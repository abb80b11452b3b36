"""What a choice is made for."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Problem:
    """What a tuning table knows a call by.

    `n_tiles` is the number of tiles of a full mask: count / n_tiles is the density of the
    ladder. `own`: an implementation was demanded by name, so a table does not put XLA's dense
    operation in its place. `asked`: the op that the user called, where it is another one that
    runs as `op`.
    """

    op: str
    platform: str
    dtype: str
    features: dict[str, float] = dataclasses.field(hash=False)
    n_tiles: int = 0
    own: bool = False
    asked: str = ""

    @property
    def called(self) -> str:
        """The op that the user called."""
        return self.asked or self.op
