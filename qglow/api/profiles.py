"""Profiles as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from qglow.core.keywords import require_read
from qglow.profiling import profile_file
from qglow.profiling.profile import Profile, merge


def load_profile(path: str | Path) -> Profile:
    """Read a profile and the samples beside it.

    Where the samples file is missing, `kept` is empty and `kept_note` says so. Raises ProfileError for
    anything that is not a whole, valid profile, and for samples that have changed.
    """
    return profile_file.load(Path(path))


def save_profile(profile: Profile, path: str | Path) -> None:
    """Write a profile as YAML, whole or not at all; the same content gives the same bytes.

    The samples that it keeps go beside it, as NAME.samples.npz beside NAME.yaml; where it keeps none, a
    file of that name is removed. The model's path is stored relative to the file. Raises InputFileError if
    it cannot be written, UsageError for the path of a profile in place of one.
    """
    require_read({"profile": profile})
    profile_file.save(profile, Path(path))


def merge_profiles(profiles: Sequence[Profile]) -> Profile:
    """Merge profiles of one model into the profile that all the data together would give.

    Raises ProfileError if models or settings differ.
    """
    return merge(profiles)
