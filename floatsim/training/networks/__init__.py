"""Small networks, their layers, their execution under a policy, and their data."""
