"""The figures of benchmarks/results/products/grouped_matmul_<device>.md: `jax.lax.ragged_dot`,
torch's grouped product where it is installed, the dense product of the same FLOPs, and ours.

    python benchmarks/grouped_matmul/table.py [--case NAME] [--dtype NAME] [--samples 15] \\
        [--out FOLDER]

Exit status 1 when an output was wrong.
"""

import sys

from jaxsparse.bench.products.grouped_matmul import OP, comparisons
from jaxsparse.bench.products.table import main
from jaxsparse.testing.product_cases import GROUPED_CASES

if __name__ == "__main__":
    sys.exit(main(OP, __doc__ or "", GROUPED_CASES, comparisons))
