"""The figures of benchmarks/results/products/moe_<device>.md: a mixture of experts as a serial
loop, as a padded batch, on `jax.lax.ragged_dot`, and ours; forward, and forward + backward, with
the memory of temporaries.

    python benchmarks/moe/table.py [--case NAME] [--dtype NAME] [--samples 15] [--out FOLDER]

Exit status 1 when an output was wrong.
"""

import sys

from jaxsparse.bench.products.moe import OP, comparisons
from jaxsparse.bench.products.table import main
from jaxsparse.testing.product_cases import MOE_CASES

if __name__ == "__main__":
    sys.exit(main(OP, __doc__ or "", MOE_CASES, comparisons, calls=1))
