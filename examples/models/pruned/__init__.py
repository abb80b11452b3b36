"""Networks of frozen weights, each one list of operators that every form evaluates."""
