"""x86-64: everything that knows this processor.

`targets` lists the targets by name, over the levels of `isas`; `description` says how each does what kernels
ask; `multiplications` and `lookup` hold its instructions, `machine` what they cost; `processor` has what
surrounds a program: float environment, waiting threads, permission to use tiles. `amx*` are kernels on AMX
tiles and their emulation for tests; `listed`, `step_lists`, `step_kinds`, `step_partners` and `byte_pairs`
are int8 products on AVX2, whose weights are packed as lists of steps, `few_rows` those that wait for memory.
"""
