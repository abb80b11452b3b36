"""`jaxsparse bench` of matrix products and of frozen weights."""
