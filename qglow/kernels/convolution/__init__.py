"""Convolutions: register-tiled and depthwise kernels, and copies of images with a border of zero points."""
