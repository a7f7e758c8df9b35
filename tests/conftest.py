"""Settings of every test."""

from __future__ import annotations

import hypothesis

# The same examples on every run and no time limit an example: a busy machine is not a failure.
hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("repeatable")
