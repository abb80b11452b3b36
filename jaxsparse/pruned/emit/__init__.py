"""Code for one frozen weight pattern: `Emitter` writes it, `CodeModule` keeps it loaded."""
