"""Inputs for tests, and matrix units as dot products to test."""
