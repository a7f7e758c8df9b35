"""The problem suite: generators by family, run on every runtime by test_runtimes.py."""
