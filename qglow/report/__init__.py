"""What quantization cost and won: accuracy, error a layer, latency, and the documents that say so."""
