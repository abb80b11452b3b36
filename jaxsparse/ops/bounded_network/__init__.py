"""`network`: a stack of saturated layers in one call."""
