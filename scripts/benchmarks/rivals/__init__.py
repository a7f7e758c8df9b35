"""Models as other tools quantize them: onnxruntime's own, and NNCF."""
