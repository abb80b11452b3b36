"""`masked_dense`: a dense layer at the tokens that count."""
