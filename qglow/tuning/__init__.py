"""Tuning of a recipe for a model: the changes that are predicted to help most are measured on data."""
