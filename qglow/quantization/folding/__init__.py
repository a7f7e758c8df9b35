"""Passes over an int8 graph that remove conversions and rescales, one pass a file."""
