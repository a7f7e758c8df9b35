"""Instruction to LLVM IR: one kernel or several for each instruction, and the choice among them.

Packages, each importing only from those above it:

- `emit`: the target's description, LLVM builder, operands in memory, loops over them, what a kernel is
- `arithmetic`: conversion, rescaling, logic, functions of one value
- `tiles`: multiplications over packed weights, storing of sums, bytes in whole registers
- `tiled`: geometry, blocks, packing and loops of products that are computed tile by tile
- `elementwise`, `movement`, `reduction`, `pooling`: kernels of these instructions
- `convolution`, `products`: kernels of convolutions and of matrix products
- `attention`: products with the shares of rows between them
- `selection`: the choice of a kernel, and of what is computed before results reach memory

No kernel here depends on a processor: its numbers and instructions come from `emit.target`, which
`qglow.targets` fills in.
"""
