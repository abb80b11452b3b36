"""Choosing a variant: settings, tuning tables, the choice, and what `explain` reports of it."""

from jaxsparse.select import bounded as _bounded  # noqa: F401
from jaxsparse.select import (  # noqa: F401  (they register their choosers)
    grouped_matmul as _grouped_matmul,
)
from jaxsparse.select import masked_conv_stack as _masked_conv_stack  # noqa: F401
from jaxsparse.select import masked_matmul as _masked_matmul  # noqa: F401
from jaxsparse.select import pruned as _pruned  # noqa: F401
from jaxsparse.select import sparse_attention as _sparse_attention  # noqa: F401
from jaxsparse.select.choice import Choice as Choice
from jaxsparse.select.config import checked as checked
from jaxsparse.select.config import config as config
from jaxsparse.select.explain import Explanation as Explanation
from jaxsparse.select.explain import explain as explain
from jaxsparse.select.masked_conv import chooser as _masked_conv  # noqa: F401
from jaxsparse.select.masked_conv import dkernel as _masked_conv_dkernel  # noqa: F401
from jaxsparse.select.policy import Option as Option
from jaxsparse.select.problem import Problem as Problem
from jaxsparse.select.select import choose as choose
from jaxsparse.select.select import default_tile as default_tile
from jaxsparse.select.sparse_ffn import chooser as _sparse_ffn  # noqa: F401
from jaxsparse.select.table import TuningTable as TuningTable
from jaxsparse.select.variants import Variant as Variant
from jaxsparse.select.variants import variants as variants

__all__ = [
    "Choice",
    "Explanation",
    "Option",
    "Problem",
    "TuningTable",
    "Variant",
    "checked",
    "choose",
    "config",
    "default_tile",
    "explain",
    "variants",
]
