"""Choosing a variant: settings, tuning tables, the choice, and what `explain` reports of it."""

from jaxsparse.select.config import checked as checked
from jaxsparse.select.config import config as config
from jaxsparse.select.explain import explain as explain
from jaxsparse.select.select import Choice as Choice
from jaxsparse.select.select import Problem as Problem
from jaxsparse.select.select import choose as choose
from jaxsparse.select.select import default_tile as default_tile
from jaxsparse.select.select import select as select
from jaxsparse.select.table import TuningTable as TuningTable
from jaxsparse.select.variants import variants as variants
