"""`sparse_ffn` in plain jnp, in steps."""
