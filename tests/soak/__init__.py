"""Long runs: `make soak` recompiles, calls and drops weights, and says whether memory is flat."""
