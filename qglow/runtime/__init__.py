"""A loaded program: the artefact file, its memory, and calling it."""
