"""Costs and gains of quantization: accuracy, error of each layer, latency, and documents that show them."""
