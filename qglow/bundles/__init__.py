"""Bundles: a program as a C library with its header and weights, which runs without Python."""
