"""`js.prune_model`: a whole parameter tree pruned and planned."""
