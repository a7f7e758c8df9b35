"""Elementwise instructions: expressions on vectors, loops for one or several, affine maps by channel."""
