"""Mathematical functions in float64, each with a certain bound of its error."""
