"""Matrix products in register tiles: geometry, choice of blocks, packing of weights, loops."""
