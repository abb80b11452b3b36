"""`bounded_matmul`: one saturated layer; `converged` runs a stack of them."""
