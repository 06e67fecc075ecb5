"""Test vectors: inputs of dot products, products and scalar operations; TestFloat; truth tables."""
