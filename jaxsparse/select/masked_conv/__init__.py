"""How `masked_conv` chooses: costs, reasons, and what stands beside what in one call."""
