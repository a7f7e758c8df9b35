"""Metrics of models whose answers top-1 does not measure."""
