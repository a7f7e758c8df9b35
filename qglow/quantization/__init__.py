"""From a float graph and a profile to an int8 graph: ranges, parameters, rewriting, islands, bias."""
