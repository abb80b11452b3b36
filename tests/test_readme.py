"""README: short, and its code runs and prints what it says."""

import contextlib
import io
import re
from pathlib import Path

import jax

TEXT = (Path(__file__).parents[1] / "README.md").read_text()
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n    ([^\n]+)\n)?", re.MULTILINE | re.DOTALL)


def test_it_is_short():
    assert len(TEXT.splitlines()) <= 90
    assert max(map(len, TEXT.splitlines())) <= 240


def test_the_code_prints_what_it_says():
    """Every block in order, in one namespace; an indented line behind one is what it prints."""
    blocks = BLOCK.findall(TEXT)
    assert len(blocks) == 2
    names: dict[str, object] = {}
    with jax.default_matmul_precision("highest"):
        for code, printed in blocks:
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(code, "README.md", "exec"), names)
            assert out.getvalue() == (f"{printed}\n" if printed else "")
    assert blocks[0][1]


def test_every_operation_has_a_line():
    code = BLOCK.findall(TEXT)[1][0]
    for name in (
        *("masked_conv", "masked_conv_stack", "affected_index", "masked_dense", "masked_matmul"),
        *("route", "grouped_matmul", "pruned_matmul", "pruned_conv", "bounded_matmul"),
        *("sparse_attention", "sparse_ffn"),
    ):
        assert f"js.{name}(" in code
