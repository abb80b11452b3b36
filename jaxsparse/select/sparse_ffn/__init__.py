"""How `sparse_ffn` chooses."""
