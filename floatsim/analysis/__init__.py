"""Analysis of roundings, traces, summation orders and surveys."""
