"""Register tiles: products with packed weights, output of sums, conversion of whole registers."""
