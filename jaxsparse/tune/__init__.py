"""Measuring variants into a tuning table: `js.tune`, `jaxsparse tune`."""

from jaxsparse.tune.api import tune as tune
from jaxsparse.tune.record import record_masks as record_masks

__all__ = ["record_masks", "tune"]
