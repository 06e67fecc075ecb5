"""Digests of results over a fixed set of cases: they show which bits a change of the code changes.

`python -m tests.digests` computes every case and compares it with `stored.json`. `--update` writes that file. A pattern
such as 'matmul/sequential(fp16)/*' selects cases.

The cases use the public API alone, so files may move. The inputs come from a counter hash in this package, so they do
not depend on NumPy's random generators. The kernels that run depend on the instructions of the CPU and on the number of
threads. The result bits do not, so the digests are the same on every machine.

A stored digest is the result at one commit. It is not a proof that the result is correct. The cases `known-wrong/...`
were wrong when the digests were first stored.
"""
