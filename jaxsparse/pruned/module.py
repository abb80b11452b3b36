"""A generated module in the process's table of code: added when packed, dropped with its owner.

Only a digest travels in a call; the text never comes from a file, it is written anew from the
pattern and the values.
"""

import weakref

from jaxsparse.ffi.register import module
from jaxsparse.pruned.emit import Code
from jaxsparse.pruned.executor import Problem

_DTYPES = ("float32", "bfloat16", "float16")


class CodeModule:
    """Keeps a module in the table of the CUDA module while it lives.

    Args:
        code: the generated code.
        problem: what it was generated for.
    """

    def __init__(self, code: Code, problem: Problem) -> None:
        self.digest = code.digest
        native, _ = module("cuda")
        if native is None:  # lowered for another machine: there is no table to keep it in
            return
        shape = code.shape
        facts = [
            problem.pattern.n_in,
            problem.pattern.n_out,
            _DTYPES.index(problem.dtype),
            _DTYPES.index(problem.out_dtype),
            code.slices,
            shape.row_tiles,
            shape.threads,
            shape.shared_bytes,
        ]
        native.pruned_code_add(code.digest, code.ptx, facts)
        weakref.finalize(self, native.pruned_code_drop, code.digest)
