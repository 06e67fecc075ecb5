"""Speed and bits against limits and other libraries: `python -m benchmarks`, explained in docs/performance.md."""
