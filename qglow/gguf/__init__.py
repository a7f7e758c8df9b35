"""Files of GGUF, and language models in them as ONNX models with the weights as they are stored."""
