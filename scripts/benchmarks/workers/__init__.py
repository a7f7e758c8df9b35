"""Processes that a benchmark starts for what a process can have one of only: a qglow, a limit of OpenVINO."""
