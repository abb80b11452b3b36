"""The figures of benchmarks/results/products/masked_matmul_<device>.md: the dense product of XLA,
with and without the mask multiplied in, sparse products of other packages, and ours, at 50 to 99 %
of the blocks unset.

    python benchmarks/masked_matmul/table.py [--case NAME] [--dtype NAME] [--samples 15] \\
        [--out FOLDER]

Exit status 1 when an output was wrong.
"""

import sys

from jaxsparse.bench.products.masked_matmul import OP, comparisons
from jaxsparse.bench.products.table import main
from jaxsparse.testing.product_cases import MATMUL_CASES

if __name__ == "__main__":
    sys.exit(main(OP, __doc__ or "", MATMUL_CASES, comparisons))
