"""Events of a computation: `record`, the log, and their counts."""
