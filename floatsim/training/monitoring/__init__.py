"""Monitors of a training run: statistics, first non-finite values, spikes."""
