"""Finding defects of qglow itself: passes run one by one, and the first step that makes a difference."""
