"""`grouped_matmul`: a product for each group of rows."""
