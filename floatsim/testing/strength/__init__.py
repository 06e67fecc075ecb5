"""The strength of a check: mutations, published checks, one product for each k."""
