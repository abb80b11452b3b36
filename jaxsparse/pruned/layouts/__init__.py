"""How each executor lays out a pattern: packing, outside of jit."""
