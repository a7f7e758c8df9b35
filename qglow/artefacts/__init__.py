"""Results on disk: the directory of a quantized model, written whole and read back checked."""
