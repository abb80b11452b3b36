"""The data that a site is measured on, a row of its costs each: masks, and what a run gave it."""
