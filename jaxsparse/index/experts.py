"""Which experts the tokens of a mixture go to."""

from typing import NamedTuple

import jax


class Routing(NamedTuple):
    """Assignments of tokens to experts, sorted by expert; `A = tokens * top_k`.

    Attributes:
        order: int32[A]: the position in the flattened `expert_ids` of the assignment that sorted
            row i serves.
        gather: int32[A]: the token that sorted row i reads, `order // top_k`.
        scatter: int32[A]: the token that it is summed into; equal to `gather`.
        group_sizes: int32[num_experts]: sorted rows of each expert.
    """

    order: jax.Array
    gather: jax.Array
    scatter: jax.Array
    group_sizes: jax.Array


class TopExperts(NamedTuple):
    """What a router chose for each token.

    Attributes:
        ids: int32[t, top_k]: a token's experts, the best first; -1 for a token that does not count.
        weights: float32[t, top_k]: their probabilities, or shares of them; 0 for such a token.
        sums: float32[experts]: each expert's probability, summed over the tokens that count.
    """

    ids: jax.Array
    weights: jax.Array
    sums: jax.Array
