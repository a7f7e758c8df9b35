"""Quantization of a float graph with a profile: ranges, parameters, rewriting, islands, bias."""
