"""Whole flax models on the plans of `js.prune_model`."""
