"""What every op stands on: checks, geometry, batching, integers, activations, dtypes, devices."""
