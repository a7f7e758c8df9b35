"""Kernels that move data: copies, gathers, transposes, resizing."""
