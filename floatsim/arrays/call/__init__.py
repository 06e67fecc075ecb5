"""The parts of a call: options, seeds and the backend."""
