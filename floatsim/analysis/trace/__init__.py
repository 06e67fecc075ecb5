"""Traces of the dot products of matrix units: `steps` holds the data, `trace` makes it, `text` prints it."""
