"""RISC-V with 64 bits, with and without vectors."""
