"""Programs as C99 source with the bits of all other runtimes, for processors that LLVM does not have."""
