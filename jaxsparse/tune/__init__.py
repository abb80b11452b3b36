"""Measuring variants into a tuning table: `js.tune`, `jaxsparse tune`."""

from jaxsparse.tune.tuner import tune as tune
