"""Measurements of qglow beside other tools: `python -m scripts.benchmarks NAME`, run from a checkout.

`catalogue.py` lists the benchmarks, `measurements/` has one file each, `frame.py` is what they share.
`models/` are the models and data that they run on, `rivals/` what other tools make of them, `tasks/` the
metrics of models that need more than labels.
"""
