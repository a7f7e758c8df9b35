"""Targets: what programs are compiled for and run by, behind one protocol.

`protocol` says what a target does, `registry` finds one by its name, and every room beside them is a
target or a family of targets: `native` (machine code of LLVM, over a description of a processor), `x86`
(descriptions of x86-64 processors) and `reference` (the interpreter). Everything above this package knows
targets by name only, everything below knows none.
"""
