"""Bundles that run: those of this processor in the process, others in an emulator of theirs."""
