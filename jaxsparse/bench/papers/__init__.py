"""The tables and figures of the five papers, measured on this machine beside what they report."""
