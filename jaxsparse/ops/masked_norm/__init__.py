"""`masked_norm`: normalisation by the statistics of the positions that count."""
