"""Data sets, histograms and the profile file: what a model's values look like over real data."""
