"""The profile file: the same bytes for the same content, read back whole, and nothing bad gets in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from qglow.core.errors import ProfileError
from qglow.profiling.histogram import ValueProfile
from qglow.profiling.profile import ModelReference, Profile, ProfiledValue
from qglow.profiling.profile_file import load, parse, quoted, save, to_yaml
from qglow.profiling.samples import DataDigest
from qglow.recipe.data import Preprocessing


def value(name: str, *rows: float) -> ProfiledValue:
    statistics = ValueProfile.of_shape((1, 2))
    for row in rows:
        statistics.observe(np.array([[row, -row / 3]], np.float32))
    return ProfiledValue(name, statistics)


def example(tmp_path: Path, **changes: object) -> Profile:
    values = {"0a" * 16: value("x", 1.0, 2.5e-8, 0.1), "0b" * 16: value("758", 0.0, np.inf, np.nan)}
    profile = Profile(
        ModelReference(tmp_path / "models" / "m.onnx", "cd" * 32),
        "ef" * 32,
        3,
        DataDigest(12345),
        {"x": (1, 2)},
        Preprocessing(resize=(8, 9), mean=(0.1, 0.2, 0.3), scale=1 / 255),
        values,
    )
    return replace(profile, **changes)


def assert_equal(a: Profile, b: Profile, folder: Path) -> None:
    assert to_yaml(a, folder) == to_yaml(b, folder)
    assert (a.samples, a.data.hex, a.shapes, a.preprocessing) == (
        b.samples,
        b.data.hex,
        b.shapes,
        b.preprocessing,
    )
    for key in a.values:
        one, other = a.values[key].statistics, b.values[key].statistics
        np.testing.assert_array_equal(one.counts, other.counts)
        assert (one.low, one.high) == (other.low, other.high)


def test_loading_restores_everything(tmp_path: Path) -> None:
    profile = example(tmp_path)
    save(profile, tmp_path / "out" / "p.yaml")
    found = load(tmp_path / "out" / "p.yaml")
    assert_equal(profile, found, tmp_path / "out")
    assert found.model.path.resolve() == (tmp_path / "models" / "m.onnx").resolve()


def test_values_that_were_nothing_but_nan_come_back(tmp_path: Path) -> None:
    """A part of a model that no sample gives numbers, such as 0 / 0, leaves the rest of the profile."""
    profile = example(tmp_path, values={"0a" * 16: value("x", np.nan, np.nan), "0b" * 16: value("y", 1.0)})
    save(profile, tmp_path / "p.yaml")
    found = load(tmp_path / "p.yaml")
    assert_equal(profile, found, tmp_path)
    assert found.values["0a" * 16].statistics.nan_count == 4


def test_same_content_gives_same_bytes(tmp_path: Path) -> None:
    save(example(tmp_path), tmp_path / "a.yaml")
    save(load(tmp_path / "a.yaml"), tmp_path / "b.yaml")
    assert (tmp_path / "a.yaml").read_bytes() == (tmp_path / "b.yaml").read_bytes()


def test_model_path_is_relative_to_the_file(tmp_path: Path) -> None:
    save(example(tmp_path), tmp_path / "out" / "p.yaml")
    assert 'path: "../models/m.onnx"' in (tmp_path / "out" / "p.yaml").read_text()


@pytest.mark.parametrize(
    "name",
    ["758", "no", "1e-05", "null", "", "a: b", 'say "hi"', "back\\slash", "käse/ß:0", "tab\there", "😀\x85"],
)
def test_any_name_comes_back(tmp_path: Path, name: str) -> None:
    assert yaml.safe_load(quoted(name)) == name
    profile = example(tmp_path, values={"0a" * 16: value(name, 1.0)}, shapes={name: (1, 2)})
    found, _ = parse(to_yaml(profile, tmp_path), "p", tmp_path)
    assert found.values["0a" * 16].name == name
    assert dict(found.shapes) == {name: (1, 2)}


def test_plain_yaml_reads_what_people_look_for(tmp_path: Path) -> None:
    document = yaml.safe_load(to_yaml(example(tmp_path), tmp_path))
    entry = document["values"]["0b" * 16]
    assert (entry["name"], entry["zeros"], entry["infinities"], entry["nans"]) == ("758", 2, 2, 2)
    assert entry["max"] == "inf"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("version: 2", "version: 4", "format version 4"),
        ("version: 2", "version: true", "format version True"),
        ("version: 2", "version: 1", "unknown key 'kept'"),
        ("limit: 0", "limit: -1", "'limit' is not a count"),
        ("limit: 0\n  samples: 0", "limit: 2\n  samples: 3", "3 samples of 2"),
        ("limit: 0\n  samples: 0", "limit: 3\n  samples: 3", "'sha256' is missing"),
        ("limit: 0\n  samples: 0", "limit: 9999\n  samples: 0", "at most 1024"),
        ('format: "qglow profile"', 'format: "x"', "not a profile"),
        ("samples: 3", "samples: -3", "samples"),
        ("samples: 3", "samples: three", "samples"),
        ("samples: 3", "samples: 0", "0 samples, which say nothing"),
        ("samples: 3", "sampels: 3", "unknown key 'sampels'"),
        ("samples: 3\n", "", "'samples' is missing"),
        ("zeros: 2", "zeros: 3", "zeros"),
        ("samples: 3", "samples: 3\nsamples: 4", "twice"),
        ("samples: 3", "samples: &a 3\nx: *a", "aliases"),
        ("samples: 3", "samples: [[[[[[[[[[1]]]]]]]]]]", "nested too deeply"),
        ("samples: 3", "samples: !!python/object/apply:os.system ['true']", "YAML"),
        ('max: "inf"', 'max: "nan"', "not numbers"),
        ('min: "-0.33333334"', 'min: "2.0"', "not a range"),
        ('name: "758"', "name: 758", "not text in quotes"),
        ("channel_axis: 1", 'channel_axis: "1"', "channel_axis"),
        ("samples: 3", "samples: " + "9" * 5000, "not a"),
    ],
)
def test_a_damaged_file_is_one_line_of_error(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = to_yaml(example(tmp_path), tmp_path)
    assert old in text
    with pytest.raises(ProfileError, match=message) as found:
        parse(text.replace(old, new, 1), "p.yaml", tmp_path)
    assert str(found.value).startswith("p.yaml: ") and "\n" not in str(found.value)


@pytest.mark.parametrize("cut", [0, 10, 200, 600, -40])
def test_a_cut_file_is_refused(tmp_path: Path, cut: int) -> None:
    text = to_yaml(example(tmp_path), tmp_path)
    with pytest.raises(ProfileError):
        parse(text[:cut], "p.yaml", tmp_path)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "{" * 100_000, "- " * 50_000, "\x00", "%YAML 9.9", "a: b: c"]
)
def test_hostile_text_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ProfileError):
        parse(text, "p.yaml", tmp_path)


def test_a_missing_or_binary_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"none\.yaml"):
        load(tmp_path / "none.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00\x9f")
    with pytest.raises(ProfileError, match=r"binary\.yaml"):
        load(tmp_path / "binary.yaml")
