"""The instruction interpreter as a target: slow, and the reference for all others."""
