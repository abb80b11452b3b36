"""Problems that no tuning table holds, drawn from a seed."""
