"""The search for a portfolio of variants that measures a part of the cells only (DynaSpa, Algorithm
1): a learned cost model proposes, a measurement decides.
"""
