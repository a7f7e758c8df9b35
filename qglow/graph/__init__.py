"""The high-level IR: one declaration an operator, values and nodes, text, rewriting, interpreter."""
