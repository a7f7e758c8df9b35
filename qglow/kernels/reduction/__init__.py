"""Kernels that read a whole axis for each result: sums, softmax, normalization, ranking, profiles."""
