"""Element-wise operations: one table of operations, one list of candidates, and a plan for each case."""
