"""Find the description of a sum that a kernel computes."""
