"""From a trained ONNX model and calibration data to an int8 program that is compiled and checked."""

from qglow.core.version import __version__

__all__ = ["__version__"]
