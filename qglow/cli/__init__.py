"""The command line: one file a command, over the public API."""
