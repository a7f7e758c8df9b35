"""One benchmark a file. Each has a BENCHMARK, which `catalogue.py` finds by the file's name."""
