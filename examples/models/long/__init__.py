"""Transformers for long inputs: sizes, masks, attention in jax.numpy, networks."""
