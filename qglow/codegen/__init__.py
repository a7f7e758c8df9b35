"""Programs to native code: LLVM modules, optimisation, object cache, loading."""
