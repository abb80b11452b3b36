"""Random problems of the public operations against float64: `make fuzz SECONDS=n SEED=k`."""
