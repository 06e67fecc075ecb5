"""The identification of quantizers: which rules reproduce the codes, scales and zero points of a tensor."""
