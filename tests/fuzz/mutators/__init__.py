"""What is done to valid files: each function takes a seeded generator and gives a new file's content."""
