"""The command `floatsim`, with one module for each group of commands."""

from __future__ import annotations

from floatsim.cli.main import app, main

__all__ = ["app", "main"]
