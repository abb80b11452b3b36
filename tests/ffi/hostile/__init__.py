"""Calls of the native handlers by hand: drawn from the contracts, then spoilt."""
