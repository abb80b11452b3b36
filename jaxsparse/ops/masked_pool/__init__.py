"""`masked_pool`: pooling over the positions that count."""
