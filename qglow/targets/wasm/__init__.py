"""WebAssembly, with and without vectors."""
