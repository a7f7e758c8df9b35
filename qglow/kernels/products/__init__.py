"""Matrix products: fully connected layers, and products of two matrices neither of which is constant."""
