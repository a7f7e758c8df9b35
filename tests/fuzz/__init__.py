"""Hostile files of every kind through the real command line, and what must hold of every answer.

`python -m tests.fuzz --help` runs any number of cases; `workbench` makes the valid files that `mutators`
change, `cases` combines them with command lines, `judge` holds the rules, `corpus` the inputs that broke one.
"""
