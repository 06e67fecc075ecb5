"""Compare results: distances, reports, the patterns of known faults."""
