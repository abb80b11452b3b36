"""`pruned_matmul`: a product with a frozen, pruned weight."""
