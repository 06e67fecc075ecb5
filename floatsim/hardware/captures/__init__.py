"""Captures of GPU outputs: files that are written, read and replayed, and outputs that others have published."""
