"""`masked_matmul`: a product of which a mask of blocks says what is needed."""
