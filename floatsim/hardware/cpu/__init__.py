"""This CPU's own matrix, dot and conversion instructions: which ones it has, and how to run them.

`backend="native-cpu"` runs sums of CPU units and conversions on the instructions themselves. `device.Cpu` has the
interface of a GPU, for probes, comparisons and captures.
"""
