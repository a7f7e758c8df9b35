"""Which choices for which parts of a model: found from data, by trying what is predicted to help most."""
