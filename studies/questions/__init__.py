"""Questions about low-precision training, computed. `python -m studies.questions` prints the answers."""
