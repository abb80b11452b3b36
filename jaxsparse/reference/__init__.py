"""Plain jnp: the meaning of every op, the oracle of its tests, and what other platforms run."""
