"""Plain LLVM vectors: the base of targets for which few instructions are chosen by hand."""
