"""What happened and why: explained roundings, traces, orders of sums, surveys."""
