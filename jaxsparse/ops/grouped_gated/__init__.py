"""`grouped_gated`: the first half of a mixture's experts."""
