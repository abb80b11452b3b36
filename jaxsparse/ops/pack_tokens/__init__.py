"""Tokens that count, side by side, and back."""
