"""The version of qglow, in the lowest layer so that every file format can record it."""

__version__ = "0.1.0"
