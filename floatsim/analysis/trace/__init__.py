"""Traces of dot products.

Of matrix units, `steps` holds the data and `text` prints it; `sums` does both for IEEE operations; `trace` makes them.
"""
