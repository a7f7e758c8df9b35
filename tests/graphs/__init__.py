"""Random correct models, and what must hold of every result of theirs.

`python -m tests.graphs --help` runs any number of them; `builder` keeps a graph while `pointwise`, `layers`
and `movement` add operators to it, `checker` holds the results against onnxruntime and each other.
"""
