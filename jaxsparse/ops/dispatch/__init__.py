"""`dispatch` and `combine`: tokens to the devices of their experts, and back."""
