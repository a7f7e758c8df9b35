"""C99 sources, for any C compiler and processor."""
