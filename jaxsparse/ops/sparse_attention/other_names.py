"""Arguments that attention has in other libraries: refused with what to give here instead, where
Python would only say that the name is unknown.
"""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")

_LENGTHS = "the mask is block_mask=js.block_masks.lengths(kv_lens, T, S, q_lens=q_lens)"
_DROPOUT = "dropout is not supported: drop out the result instead"
#: Argument of other libraries' attention -> what to give here.
OTHER_NAMES = {
    "query": "the first three arguments are q, k and v",
    "key": "the first three arguments are q, k and v",
    "value": "the first three arguments are q, k and v",
    "mask": "make blocks of it: block_mask=js.BlockMask.from_dense(mask, block_size), of "
    "bool[B or 1, N or 1, T, S]",
    "attn_mask": "make blocks of it: block_mask=js.BlockMask.from_dense(mask, block_size), of "
    "bool[B or 1, N or 1, T, S]",
    "is_causal": "the mask is block_mask=js.block_masks.causal(T, S)",
    "causal": "the mask is block_mask=js.block_masks.causal(T, S)",
    "query_seq_lengths": _LENGTHS,
    "key_value_seq_lengths": _LENGTHS,
    "local_window_size": "the mask is "
    "block_mask=js.block_masks.sliding_window(T, S, left=left, right=right)",
    "return_residual": "return_lse=True returns the log-sum-exp",
    "softmax_scale": "it is scale=",
    "dropout_rate": _DROPOUT,
    "dropout_p": _DROPOUT,
    "dropout_rng": _DROPOUT,
}


def answers_other_names(op: Callable[_Given, _Found]) -> Callable[_Given, _Found]:
    """`op`, which raises TypeError with the sentence of an argument of OTHER_NAMES."""

    @functools.wraps(op)
    def answering(*args: _Given.args, **kwargs: _Given.kwargs) -> _Found:
        found = [f"{n}= is not an argument; {OTHER_NAMES[n]}" for n in kwargs if n in OTHER_NAMES]
        if found:
            raise TypeError(f"{op.__name__}: {'; '.join(found)}")
        return op(*args, **kwargs)

    return answering
