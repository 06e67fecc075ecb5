"""A dot product of a matrix unit step by step: `steps` has the data, `trace` makes them, `text` prints them."""
