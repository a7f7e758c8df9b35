"""Truth files: COCO's annotations and sequences, how samples find theirs, and what is said of bad files."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qglow.core.errors import DataError, UsageError
from qglow.metrics import Truth, read_coco

COCO: dict[str, Any] = {
    "images": [
        {"id": 7, "file_name": "val/a.jpg", "width": 640, "height": 480},
        {"id": 9, "file_name": "b.jpg", "width": 10, "height": 20},
    ],
    "annotations": [
        {"image_id": 7, "category_id": 90, "bbox": [1, 2, 30, 40]},
        {"image_id": 7, "category_id": 2, "bbox": [0.5, 0, 2, 2], "iscrowd": 1},
    ],
    "categories": [{"id": 90, "name": "toothbrush"}, {"id": 2, "name": "bicycle"}],
}


@pytest.mark.parametrize(
    ("change", "said"),
    [({"file_name": "b.jpg"}, "'b.jpg' is listed twice"), ({"id": "same"}, "two images have one id")],
)
def test_images_that_are_listed_twice_are_refused(change: dict[str, str], said: str) -> None:
    changed = copy.deepcopy(COCO)
    for image in changed["images"]:
        image.update(change)
    if "id" in change:
        changed["annotations"] = []
    with pytest.raises(ValueError, match=said):
        read_coco(changed)


def written(folder: Path, document: object) -> Truth:
    path = folder / "truth.json"
    path.write_text(json.dumps(document))
    return Truth(path)


def test_boxes_are_corners_and_classes_count_the_categories() -> None:
    photo = read_coco(COCO)["val/a.jpg"]
    assert (photo.width, photo.height) == (640, 480)
    assert photo.boxes.corners.tolist() == [[1, 2, 31, 42], [0.5, 0, 2.5, 2]]
    assert photo.boxes.classes.tolist() == [1, 0] and photo.boxes.is_crowd.tolist() == [False, True]
    assert read_coco(COCO)["b.jpg"].boxes.corners.shape == (0, 4)


def test_samples_find_their_photo_by_name_or_by_the_end_of_their_path(tmp_path: Path) -> None:
    truth = written(tmp_path, COCO)
    assert [photo.name for photo in truth.photos(["b.jpg", "val/a.jpg", "a.jpg", "other/b.jpg"])] == [
        "b.jpg", "val/a.jpg", "val/a.jpg", "b.jpg",
    ]  # fmt: skip
    with pytest.raises(DataError, match="truth.json does not know sample c.jpg: no image is called so"):
        truth.photos(["c.jpg"])


def test_a_name_that_two_images_end_in_is_no_answer(tmp_path: Path) -> None:
    document = copy.deepcopy(COCO)
    document["images"][1]["file_name"] = "train/a.jpg"
    truth = written(tmp_path, document)
    assert truth.photos(["train/a.jpg"])[0].width == 10
    with pytest.raises(DataError, match="a.jpg: more than one image is called so"):
        truth.photos(["a.jpg"])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d.pop("categories"), "'categories' is missing"),
        (lambda d: d["images"][0].pop("width"), "'width' is missing"),
        (lambda d: d["annotations"][0].update(image_id=1), "of image 1, which is not listed"),
        (lambda d: d["annotations"][0].update(category_id=1), "of category 1, which is not listed"),
        (lambda d: d["annotations"][0].update(bbox=[1, 2, 3]), "(bbox|inhomogeneous)"),
        (lambda d: d["annotations"][0].update(bbox=[1, 2, -3, 4]), r"a bbox is not \[x, y, width, height\]"),
        (lambda d: d["categories"].append({"id": 2}), "two categories have one id"),
    ],
)
def test_what_is_wrong_with_annotations_is_said_in_a_line(tmp_path: Path, change: Any, said: str) -> None:
    document = copy.deepcopy(COCO)
    change(document)
    with pytest.raises(DataError, match=rf"truth.json is not in COCO's format: .*{said}") as caught:
        written(tmp_path, document).photos(["b.jpg"])
    assert "\n" not in str(caught.value)


def test_a_list_of_classes_is_no_truth_file(tmp_path: Path) -> None:
    for document in ([1, 2, 3], {"sequences": 3}):
        with pytest.raises(DataError, match="truth.json"):
            written(tmp_path, document).photos(["b.jpg"])
        with pytest.raises(DataError, match="truth.json has no sequences of integers"):
            written(tmp_path, document).sequences(["b.jpg"])
    (tmp_path / "truth.json").write_text("{")
    with pytest.raises(DataError, match="cannot read .*truth.json as JSON"):
        Truth(tmp_path / "truth.json").photos(["b.jpg"])


def test_a_metric_says_that_its_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs `labels`: a file"):
        Truth(None).photos(["a"])
    with pytest.raises(DataError, match="cannot read .*none.json"):
        Truth(tmp_path / "none.json").sequences(["a"])


def test_sequences_are_found_by_name_or_by_place(tmp_path: Path) -> None:
    truth = written(tmp_path, {"a.png": [3, 1], "b.png": []})
    assert truth.sequences(["b.png", "x/a.png"]) == [(), (3, 1)]
    path = tmp_path / "plates.npy"
    np.save(path, np.array([[4, 5, -1], [6, 7, 8], [-1, 2, 3]], np.int8))
    assert Truth(path).sequences(["x.npz[1]", "x.npz[0]", "x.npz[2]"]) == [(6, 7, 8), (4, 5), ()]
    with pytest.raises(DataError, match=r"does not know sample x.npz\[3\]"):
        Truth(path).sequences(["x.npz[3]"])


def test_sequences_are_integers(tmp_path: Path) -> None:
    path = tmp_path / "plates.npy"
    np.save(path, np.zeros((2, 3), np.float32))
    with pytest.raises(DataError, match=r"it has float32 \[2, 3\], not integers \[N, length\]"):
        Truth(path).sequences(["x[0]"])
    for symbols in ([1.5], ["a"], [True], 3):
        with pytest.raises(DataError, match="has no sequences of integers"):
            written(tmp_path, {"a": symbols}).sequences(["a"])
