"""From a trained ONNX model and calibration data to an int8 program that is compiled and checked."""

__version__ = "0.1.0"
