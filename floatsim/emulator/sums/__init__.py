"""The plan of a sum, and its execution."""
