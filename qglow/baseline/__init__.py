"""Models held to the accuracy that they are known to reach: the baseline file, checking, verdicts."""
