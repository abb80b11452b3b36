"""What a benchmark found: rows, crossovers, tables, plots, files, and where it was measured."""
