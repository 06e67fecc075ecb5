"""Which model a matrix unit has, read from its sums."""
