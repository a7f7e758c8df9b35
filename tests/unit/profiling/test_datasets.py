"""Data sets: every kind of source, selection, labels, and what is said about data that does not fit."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from qglow.core.errors import DataError, QglowError, UsageError
from qglow.profiling.datasets import DataSet, open_data, parse_selection
from qglow.profiling.samples import DataDigest, InputSpec, Sample, batches
from qglow.recipe import DataMapping, Preprocessing, Recipe
from tests.unit.profiling.archives import FLOAT, ONE, TWO, ramp, save

CALIB_DATA = Path(__file__).parents[3] / "calib_data"
IMAGE = {"x": InputSpec((3, 4, 4), FLOAT)}
PLAIN = Recipe(Preprocessing())


def keys(data: DataSet) -> list[str]:
    return [sample.key for sample in data]


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Five images in sorted order a/0.png .. a/4.png, image i filled with the colour (i, 10, 20)."""
    (tmp_path / "a").mkdir()
    for index in reversed(range(5)):
        pixels = np.full((4, 4, 3), (index, 10, 20), np.uint8)
        Image.fromarray(pixels).save(tmp_path / "a" / f"{index}.png")
    return tmp_path


def test_the_example_data_opens() -> None:
    data = open_data(CALIB_DATA / "calib.npz", {"input": InputSpec((1, 8, 8), FLOAT)})
    first = next(iter(data))
    assert data.size == 200
    assert first.inputs["input"].shape == (1, 8, 8) and first.inputs["input"].dtype == np.float32
    assert first.label is not None and 0 <= first.label <= 9


def test_npy_is_mapped_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, ramp(3))
    data = open_data(path, ONE)
    assert [sample.inputs["x"].tolist() for sample in data] == [[0, 1], [2, 3], [4, 5]]
    assert isinstance(data.source._arrays["x"], np.memmap)  # type: ignore[attr-defined]


def test_npz_feeds_several_inputs_and_casts_without_loss_of_kind(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    np.savez(path, x=ramp(2).astype(np.float64), t=np.array([5, 6], np.int32), labels=np.array([[1], [0]]))
    samples = list(open_data(path, TWO))
    assert [int(sample.inputs["t"]) for sample in samples] == [5, 6]
    assert samples[0].inputs["x"].dtype == np.float32 and samples[0].inputs["t"].dtype == np.int64
    assert [sample.label for sample in samples] == [1, 0]


@pytest.mark.parametrize("suffix", ["", "[x=other,label=c]"])
def test_recipe_and_suffix_name_the_arrays(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "d.npz"
    np.savez(path, calib=ramp(1), other=ramp(2) + 1, y=[7], c=[8, 9])
    recipe = Recipe(data=DataMapping({"x": "calib"}, "y"))
    data = open_data(f"{path}{suffix}", ONE, recipe=recipe)
    expected = [8, 9] if suffix else [7]
    assert [sample.label for sample in data] == expected


def test_uint8_images_in_an_array_are_preprocessed(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 4, 4, 3), np.uint8)
    path = tmp_path / "x.npy"
    np.save(path, pixels)
    recipe = Recipe(Preprocessing(channels="BGR", scale=1 / 255, mean=(0.5, 0.25, 0.0), std=(2.0,)))
    first = next(iter(open_data(path, IMAGE, recipe=recipe))).inputs["x"]
    expected = (pixels[0].astype(np.float64) / 255 - [0.0, 0.25, 0.5]) / 2  # mean is in BGR order
    np.testing.assert_allclose(first, expected[:, :, ::-1].transpose(2, 0, 1), rtol=1e-6, atol=1e-7)


def test_images_are_sorted_and_labelled_by_csv(images: Path) -> None:
    (images / "labels.csv").write_text("file,class_index\na/0.png,3\na/4.png,2\n")
    data = open_data(images, IMAGE, recipe=PLAIN)
    assert keys(data) == [f"a/{index}.png" for index in range(5)]
    assert [sample.label for sample in data] == [3, None, None, None, 2]
    assert [float(sample.inputs["x"][0, 0, 0]) for sample in data] == [0, 1, 2, 3, 4]


def test_labels_are_found_one_directory_up(images: Path) -> None:
    (images / "labels.csv").write_text("file,label,note\na/1.png,7,n\n")
    data = open_data(images / "a", IMAGE, recipe=PLAIN)
    assert [(sample.key, sample.label) for sample in data][1] == ("1.png", 7)


def test_labels_that_are_asked_for_cover_every_image(images: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    rows = [f"a/{index}.png,{index}" for index in range(5)]
    (other / "l.csv").write_text("\n".join(["file,label", *rows]))
    data = open_data(images, IMAGE, recipe=PLAIN, labels=other / "l.csv")
    assert [sample.label for sample in data] == [0, 1, 2, 3, 4]
    (other / "l.csv").write_text("\n".join(["file,label", *rows[:-1]]))
    with pytest.raises(DataError, match="no label for 1 of 5 images"):
        open_data(images, IMAGE, recipe=PLAIN, labels=other / "l.csv")


def test_a_single_image_is_a_data_set_of_one(images: Path) -> None:
    assert keys(open_data(images / "a" / "3.png", IMAGE, recipe=PLAIN)) == ["3.png"]


@pytest.mark.parametrize(
    ("resize", "crop", "shape"),
    [
        (None, None, (6, 9)),
        (12, None, (12, 18)),
        (7, None, (7, 10)),
        ((5, 7), None, (5, 7)),
        (12, (4, 8), (4, 8)),
    ],
)
def test_resize_and_crop_sizes(tmp_path: Path, resize: Any, crop: Any, shape: tuple[int, int]) -> None:
    Image.fromarray(np.zeros((6, 9, 3), np.uint8)).save(tmp_path / "i.png")
    for layout, expected in (("NCHW", (3, *shape)), ("NHWC", (*shape, 3))):
        recipe = Recipe(Preprocessing(resize=resize, crop=crop, layout=layout))
        specs = {"x": InputSpec((None, None, None), FLOAT)}
        assert next(iter(open_data(tmp_path, specs, recipe=recipe))).inputs["x"].shape == expected


def test_crop_takes_the_centre(tmp_path: Path) -> None:
    pixels = np.arange(25, dtype=np.uint8).reshape(1, 5, 5)
    np.save(tmp_path / "x.npy", pixels)
    recipe = Recipe(Preprocessing(crop=(2, 3), channels="GRAY"))
    specs = {"x": InputSpec((1, 2, 3), FLOAT)}
    assert next(iter(open_data(tmp_path / "x.npy", specs, recipe=recipe))).inputs["x"].tolist() == [
        [[6, 7, 8], [11, 12, 13]]
    ]


def test_gray_recipe_converts_colour_images(images: Path) -> None:
    specs = {"x": InputSpec((1, 4, 4), FLOAT)}
    assert open_data(images, specs, recipe=Recipe(Preprocessing(channels="GRAY"))).size == 5
    for sample in open_data(images, specs, recipe=Recipe(Preprocessing(channels="GRAY"))):
        assert sample.inputs["x"].shape == (1, 4, 4)


def test_onnx_test_data_sets_in_numeric_order(tmp_path: Path) -> None:
    for number in (10, 2):
        folder = tmp_path / f"test_data_set_{number}"
        folder.mkdir()
        (folder / "input_0.pb").write_text(f"{number} 2")
    reader = _fake_tensors()
    data = open_data(tmp_path, ONE, read_tensor=reader)
    assert keys(data) == [f"test_data_set_{n}[{row}]" for n in (2, 10) for row in (0, 1)]
    assert next(iter(data)).inputs["x"].tolist() == [2, 2]
    assert keys(open_data(tmp_path / "test_data_set_2", ONE, read_tensor=reader))[0] == "test_data_set_2[0]"


def _fake_tensors() -> Callable[[Path], Any]:
    """Reads "VALUE ROWS" as a float32 [ROWS, 2]; stands for the reader of TensorProto files."""

    def read(path: Path) -> Any:
        value, rows = path.read_text().split()
        return np.full((int(rows), 2), int(value), np.float32)

    return read


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """Module of generators in the working directory, under a name of its own."""
    name = f"data_{os.getpid()}_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(
        "def good():\n"
        "    for i in range(6):\n"
        "        yield {'x': [[i, i]] if i % 2 else [i, i], 'label': i}\n"
        "def empty():\n    return []\n"
        "def wrong():\n    yield {'y': 1}\n"
        "def broken():\n    yield {'x': [1, 2]}\n    raise OSError('disk')\n"
    )
    monkeypatch.chdir(tmp_path)
    return name


def test_function_is_read_lazily_and_again_for_every_pass(functions: str) -> None:
    data = open_data(f"{functions}:good", ONE, select="1::2", samples=2)
    assert data.size is None
    for _ in range(2):
        assert [(sample.inputs["x"].tolist(), sample.label) for sample in data] == [([1, 1], 1), ([3, 3], 3)]


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("absent", UsageError, "has no function 'absent'"),
        ("empty", DataError, "no samples"),
        ("wrong", DataError, r"has \['y'\], the model takes \['x'\]"),
        ("broken", DataError, "raised OSError: disk"),
    ],
)
def test_mistakes_of_a_function(functions: str, name: str, error: type[QglowError], message: str) -> None:
    with pytest.raises(error, match=message):
        list(open_data(f"{functions}:{name}", ONE))


def test_negative_selection_of_a_generator_is_refused(functions: str) -> None:
    with pytest.raises(UsageError, match="forwards"):
        list(open_data(f"{functions}:good", ONE, select="::-1"))


BOUND = st.none() | st.integers(-12, 12)


@given(start=BOUND, stop=BOUND, step=st.none() | st.integers(-4, 4).filter(bool), count=BOUND)
def test_selection_is_that_of_python(
    tmp_path_factory: pytest.TempPathFactory, start: Any, stop: Any, step: Any, count: int | None
) -> None:
    path = tmp_path_factory.getbasetemp() / "ten.npy"
    if not path.exists():
        np.save(path, ramp(10))
    select = ":".join("" if bound is None else str(bound) for bound in (start, stop, step))
    samples = None if count is None or count < 1 else count
    expected = [f"ten.npy[{index}]" for index in range(10)[start:stop:step]][:samples]
    if not expected:
        with pytest.raises(DataError, match="leaves none of 10"):
            open_data(path, ONE, select=select, samples=samples)
        return
    data = open_data(path, ONE, select=select, samples=samples)
    assert keys(data) == expected and data.size == len(expected)


@pytest.mark.parametrize("text", ["", "5", "a:b", "::0", "1:2:3:4"])
def test_wrong_selection(text: str) -> None:
    with pytest.raises(UsageError, match="START:STOP:STEP"):
        parse_selection(text)


def test_an_archive_is_read_up_to_the_last_sample_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QGLOW_MAX_MEMORY", "2M")
    path, specs = tmp_path / "d.npz", {"x": InputSpec((1 << 16,), FLOAT)}
    np.savez_compressed(path, x=np.zeros((64, 1 << 16), np.float32), label=np.arange(64))
    data = open_data(path, specs, select="1:60:2", samples=3)
    assert [(sample.key, sample.label) for sample in data] == [(f"d.npz[{i}]", i) for i in (1, 3, 5)]
    with pytest.raises(QglowError, match="array 'x'"):
        open_data(path, specs)
    many = tmp_path / "many.npz"
    np.savez_compressed(many, x=np.zeros((2, 1 << 16), np.float32), label=np.zeros(10**6, np.int64))
    with pytest.raises(DataError, match="1000000 labels 'label' of 2 samples"):
        open_data(many, specs)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.npy", b"not an array", "cannot read"),
        ("x.npz", b"PK\x03\x04 truncated", "cannot read"),
        ("x.png", b"not an image", "cannot read the image"),
        ("x.bin", b"", "data is a directory of images"),
        ("labels.csv", b"file,class_index\nx.png,zebra\n", "line 2: the label 'zebra' is not a class number"),
        ("labels.csv", b"file,class_index\nx.png,1\n./x.png,1\n", "line 3: './x.png' has a label already"),
        ("labels.csv", b"file,class_index\nx.png,9223372036854775808\n", "line 2: the label '92"),
        ("labels.csv", b"file,class_index\nx\0.png,1\n", "cannot read the labels"),
        ("labels.csv", b"name,class\n", "needs the columns 'file' and 'class_index'"),
    ],
)
def test_damaged_files(images: Path, name: str, content: bytes, message: str) -> None:
    path = images / name
    path.write_bytes(content)
    specs = IMAGE if name.endswith(("png", "csv")) else ONE
    with pytest.raises(DataError, match=message):
        list(open_data(images if name == "labels.csv" else path, specs, recipe=PLAIN))


def test_truncated_image_is_named(images: Path) -> None:
    whole = (images / "a" / "2.png").read_bytes()
    (images / "a" / "2.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"a/2\.png"):
        list(open_data(images, IMAGE, recipe=PLAIN))


def test_an_input_of_integers_takes_pixels_that_are_whole(images: Path) -> None:
    pixels = {name: InputSpec(spec.shape, np.dtype(np.uint8)) for name, spec in IMAGE.items()}
    reals = list(open_data(images, IMAGE, recipe=PLAIN))
    for sample, real in zip(open_data(images, pixels, recipe=PLAIN), reals, strict=True):
        for name, value in sample.inputs.items():
            assert value.dtype == np.uint8
            np.testing.assert_array_equal(value, real.inputs[name])
    with pytest.raises(DataError, match="is float32, the model takes uint8"):
        list(open_data(images, pixels, recipe=Recipe(Preprocessing(scale=0.01))))


def test_images_need_preprocessing_and_one_image_input(images: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="need a recipe with a 'preprocessing' section"):
        open_data(images, IMAGE)
    with pytest.raises(DataError, match=r"takes float32 \[2\], no image becomes that"):
        open_data(images, ONE, recipe=PLAIN)
    with pytest.raises(DataError, match="images feed one input"):
        open_data(images, TWO, recipe=PLAIN)
    with pytest.raises(DataError, match=r"4 x 4 pixels, smaller than the crop 8 x 8"):
        list(open_data(images, IMAGE, recipe=Recipe(Preprocessing(crop=(8, 8)))))
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match="no images"):
        open_data(tmp_path / "none", IMAGE, recipe=PLAIN)


def test_missing_data_and_wrong_options(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        open_data(tmp_path / "absent", ONE)
    with pytest.raises(UsageError, match="cannot import absent_module"):
        open_data("absent_module:f", ONE)
    path = save(tmp_path, x=ramp(1))
    with pytest.raises(UsageError, match="^samples 0"):
        open_data(path, ONE, samples=0)
    with pytest.raises(UsageError, match=r"FILE\[input=key"):
        open_data(f"{path}[x]", ONE)
    with pytest.raises(DataError, match="not the label key 'z'"):
        open_data(f"{path}[label=z]", ONE)
    with pytest.raises(DataError, match=r"data.inputs names \['w'\]"):
        open_data(f"{path}[w=x]", ONE)


def test_missing_pillow_names_the_extra(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "PIL.Image", None)
    with pytest.raises(UsageError, match=r"pip install 'qglow\[images\]'"):
        list(open_data(images, IMAGE, recipe=PLAIN))


def test_batches_stack_and_keep_the_rest(tmp_path: Path) -> None:
    data = open_data(save(tmp_path, x=ramp(5), label=np.arange(5)), ONE)
    found = list(batches(data, 2))
    assert [len(batch) for batch in found] == [2, 2, 1]
    assert np.concatenate([batch.inputs["x"] for batch in found]).tolist() == ramp(5).tolist()
    assert [label for batch in found for label in batch.labels] == [0, 1, 2, 3, 4]


def test_batches_of_different_shapes_are_refused() -> None:
    samples = [Sample("a", {"x": np.zeros(2)}), Sample("b", {"x": np.zeros(3)})]
    with pytest.raises(DataError, match=r"b: input 'x' is \[3\], but that of a is \[2\]"):
        list(batches(samples, 2))
    assert len(list(batches(samples, 1))) == 2


def test_digest_ignores_order_and_sharding_and_sees_every_change() -> None:
    samples = [{"x": np.full(2, i, np.float32)} for i in range(4)]

    def digest(parts: list[dict[str, Any]]) -> str:
        result = DataDigest()
        for part in parts:
            result.add(part)
        return result.hex

    whole = digest(samples)
    assert digest(samples[::-1]) == whole
    first, second = DataDigest(), DataDigest()
    first.add(samples[0])
    for sample in samples[1:]:
        second.add(sample)
    first.merge(second)
    assert first.hex == whole and DataDigest.parse(whole).hex == whole
    changed = [
        samples[:3],
        [*samples, samples[0]],
        [*samples[:3], {"y": samples[3]["x"]}],
        [*samples[:3], {"x": samples[3]["x"].astype(np.float64)}],
        [*samples[:3], {"x": samples[3]["x"][None]}],
    ]
    assert len({whole, *map(digest, changed)}) == 6


def test_rows_of_labels_are_those_of_positions(tmp_path: Path) -> None:
    labels = np.array([[3, 0, -1], [0, 2, 1]])
    np.savez(tmp_path / "d.npz", x=np.zeros((2, 2), np.float32), label=labels)
    np.savez(tmp_path / "plain.npz", x=np.zeros((2, 2), np.float32))
    np.save(tmp_path / "l.npy", labels)
    beside = open_data(tmp_path / "plain.npz", ONE, labels=tmp_path / "l.npy")
    for data in (open_data(tmp_path / "d.npz", ONE), beside):
        assert [sample.label for sample in data] == [(3, 0, -100), (0, 2, 1)]
    recipe = Recipe(data=DataMapping(ignore_label=0))
    found = open_data(f"{tmp_path / 'd.npz'}[x=x,label=label]", ONE, recipe=recipe)
    assert [sample.label for sample in found] == [(3, -100, -100), (-100, 2, 1)]


def test_a_csv_may_have_a_row_of_labels(images: Path) -> None:
    (images / "labels.csv").write_text("file,label\na/0.png,3 -100  1\na/1.png,2\n")
    assert [sample.label for sample in open_data(images, IMAGE, recipe=PLAIN)][:2] == [(3, -100, 1), 2]
    (images / "labels.csv").write_text("file,label\na/0.png,3 x\n")
    with pytest.raises(DataError, match="line 2: the label '3 x' is not a class number"):
        open_data(images, IMAGE, recipe=PLAIN)
