"""Long runs: `make soak` compiles, calls and drops programs, and reports whether memory is flat."""
