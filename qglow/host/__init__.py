"""Nodes that another runtime executes in this process: the only package that runs models in onnxruntime."""
