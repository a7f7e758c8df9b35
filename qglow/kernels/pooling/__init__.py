"""Maxima and means over windows, and means over a whole image that the producing kernel adds up."""
