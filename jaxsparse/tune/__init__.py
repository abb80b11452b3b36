"""Measuring variants into a tuning table: `js.tune`, `jaxsparse tune`."""

from jaxsparse.tune.api import tune as tune

__all__ = ["tune"]
