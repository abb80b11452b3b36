"""How times are taken: chains of calls, interleaved samples, events on the GPU."""
