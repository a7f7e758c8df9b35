"""Base of every emitter: targets, the LLVM builder, operands, loops over them, kernels."""
