"""Common claims about low-precision training, computed. `python -m studies.claims` prints the verdicts."""
