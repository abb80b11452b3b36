"""`kept_matmul`: a product with a weight of which only some blocks exist."""
