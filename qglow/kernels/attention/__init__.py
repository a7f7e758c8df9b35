"""Attention: products, masks and shares of one block of rows after the other."""
