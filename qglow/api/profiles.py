"""Profiles as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from qglow.profiling import profile_file
from qglow.profiling.profile import Profile, merge


def load_profile(path: str | Path) -> Profile:
    """Read a profile. Raises ProfileError for anything that is not a whole, valid profile."""
    return profile_file.load(Path(path))


def save_profile(profile: Profile, path: str | Path) -> None:
    """Write a profile as YAML, whole or not at all; the same content gives the same bytes.

    The model's path is stored relative to the file. Raises InputFileError.
    """
    profile_file.save(profile, Path(path))


def merge_profiles(profiles: Sequence[Profile]) -> Profile:
    """The profile of all the data together. Raises ProfileError where models or settings differ."""
    return merge(profiles)
