"""`route`: from each token's experts to the sorted order of the grouped products."""
