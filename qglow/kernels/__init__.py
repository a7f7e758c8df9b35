"""Instructions to LLVM IR: ISA descriptions, a small loop builder, kernels and their selection."""
