"""Machine code that LLVM generates for a described processor, loaded into this process."""
