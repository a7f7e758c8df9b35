"""Importing this module declares every kernel."""

from __future__ import annotations

from qglow.kernels import elementwise as elementwise
