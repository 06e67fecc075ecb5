"""The same operations on real silicon, through CuPy: run them, compare them bit by bit, probe and capture a card.

`instructions` is the table of what can be issued, `device` a card that issues it.
"""
