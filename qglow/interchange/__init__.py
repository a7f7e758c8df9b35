"""Facts that relate ONNX and graphs, as data that importer and exporter both read."""
