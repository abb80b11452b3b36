"""A generated module in the process's table of code: added when packed, dropped with its owner.

Only a digest travels in a call; the text never comes from a file, it is written anew from the
pattern and the values.
"""

import weakref
from collections.abc import Sequence

from jaxsparse.ffi.register import module
from jaxsparse.pruned.emit import Code, digest_of
from jaxsparse.pruned.executor import Problem

_DTYPES = ("float32", "bfloat16", "float16")


class CodeModule:
    """Keeps modules in the table of the CUDA module while it lives.

    Args:
        codes: the generated code: modules that together make one product.
        problem: what it was generated for.
    """

    def __init__(self, codes: Sequence[Code], problem: Problem) -> None:
        self.digest = digest_of(*(code.ptx for code in codes))
        native, _ = module("cuda")
        if native is None:  # lowered for another machine: there is no table to keep it in
            return
        shape = codes[0].shape
        facts = [
            problem.pattern.n_in,
            problem.pattern.n_out,
            _DTYPES.index(problem.dtype),
            _DTYPES.index(problem.out_dtype),
            shape.row_tiles,
            shape.threads,
            shape.shared_bytes,
            shape.parts,
            int(codes[0].hopper),
        ]
        texts = [(code.ptx, code.slices) for code in codes]
        native.pruned_code_add(self.digest, texts, facts)
        weakref.finalize(self, native.pruned_code_drop, self.digest)
