"""The sparse DNN challenge: `python -m jaxsparse.bench.challenge`."""
