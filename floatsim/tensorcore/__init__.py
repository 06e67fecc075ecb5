"""Matrix units, bit for bit: the architectures as a table, and what each instruction computes.

`architectures` is the table, `instructions` says what its rows hold; `nvidia` and `amd` have the models in exact
integers, and `reference` joins them to dot products of any length.
"""
