"""Test vectors for matrix instructions, and the emulated units that they test."""
