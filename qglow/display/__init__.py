"""Forms in which people see results: documents, pieces of notebooks, data frames, plots."""
