"""Importing this module declares every kernel."""

from __future__ import annotations
