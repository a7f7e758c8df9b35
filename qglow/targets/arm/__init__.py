"""Arm: aarch64 and armv7 with NEON, and Cortex-M microcontrollers."""
