"""Inputs that broke a rule once, each as the code that makes it, with the exit code that it must give."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from tests.fuzz.judge import BAD_FILE, MEMORY, OK, UNSUPPORTED
from tests.fuzz.mutators.arrays import header, npy
from tests.unit.importer.tiny import tiny_model

Words = tuple[str, ...]
Make = Callable[[Path, Path], Words]
"""Writes into the second folder, with valid files in the first, and gives the command line."""

CORPUS: dict[str, tuple[int, Make]] = {}


def past(code: int) -> Callable[[Make], Make]:
    """Add an input to the corpus under the name of the function that makes it."""

    def add(make: Make) -> Make:
        CORPUS[make.__name__.replace("_", "-")] = (code, make)
        return make

    return add


def inspected(folder: Path, model: ModelProto) -> Words:
    """A model to look at."""
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return "inspect", str(path)


def ran(folder: Path, model: ModelProto, **arrays: np.ndarray) -> Words:
    """A model to run over arrays, or over what its first input is."""
    inspected(folder, model)
    if not arrays:
        shape = [dim.dim_value or 1 for dim in model.graph.input[0].type.tensor_type.shape.dim]
        arrays = {model.graph.input[0].name: np.ones(shape, np.float32)}
    np.savez(folder / "data.npz", **arrays)
    return "run", str(folder / "model.onnx"), "--data", str(folder / "data.npz"), "-o", "made.npz"


def one(kind: str, inputs: Sequence[str] = ("x",), opset: int = 13, **attributes: object) -> NodeProto:
    """A node with the output y."""
    return helper.make_node(kind, list(inputs), ["y"], name=f"{kind}_0", **attributes)


@past(BAD_FILE)
def function_that_calls_itself(bench: Path, folder: Path) -> Words:
    model = tiny_model([helper.make_node("f", ["x"], ["y"], domain="local")], {"x": [2]}, ["y"])
    call = helper.make_node("f", ["i"], ["o"], domain="local")
    model.functions.append(helper.make_function("local", "f", ["i"], ["o"], [call], list(model.opset_import)))
    model.opset_import.append(helper.make_opsetid("local", 1))
    return inspected(folder, model)


@past(MEMORY)
def range_behind_what_is_not_supported(bench: Path, folder: Path) -> Words:
    """Shape inference would list the whole range."""
    nodes = [
        helper.make_node("Range", ["start", "limit", "delta"], ["steps"]),
        helper.make_node("RandomNormalLike", ["x"], ["y"]),
    ]
    bounds = {name: np.array(v, np.int64) for name, v in (("start", 0), ("limit", 2**62), ("delta", 1))}
    return inspected(folder, tiny_model(nodes, {"x": [3, 3]}, ["y"], bounds))


@past(UNSUPPORTED)
def weights_without_axes(bench: Path, folder: Path) -> Words:
    weights = {"w": np.float32(1)}
    return inspected(
        folder, tiny_model([one("ConvTranspose", ("x", "w"))], {"x": [1, 2, 4, 4]}, ["y"], weights)
    )


@past(UNSUPPORTED)
def product_without_rows(bench: Path, folder: Path) -> Words:
    shape = ("--shape", "image=0,1,8,8")
    return "compile", str(folder / "image.onnx"), *shape, "-o", "made.qglow"


@past(BAD_FILE)
def labels_that_are_no_array(bench: Path, folder: Path) -> Words:
    """A member without the suffix of arrays is given as bytes."""
    with np.load(folder / "image.npz") as archive:
        images = archive["image"]
    with zipfile.ZipFile(folder / "data.npz", "w") as archive:
        archive.writestr("image.npy", npy(images))
        archive.writestr("label", b"nothing")
    data = str(folder / "data.npz")
    return "compare", str(bench / "image.quantized"), "--data", data, "--model", str(folder / "image.onnx")


@past(UNSUPPORTED)
def constant_of_any_size(bench: Path, folder: Path) -> Words:
    """A few bytes that ask for ten gigabytes, which are added to an input."""
    node = helper.make_node("ConstantOfShape", ["shape"], ["much"])
    sizes = {"shape": np.array([2500, 1000, 1000], np.int64)}
    return ran(folder, tiny_model([node, one("Add", ("x", "much"))], {"x": [1]}, ["y"], sizes))


@past(MEMORY)
def input_of_any_size(bench: Path, folder: Path) -> Words:
    model = tiny_model([one("Relu")], {"x": [1, 2**31, 2**31, 2**31]}, ["y"])
    return ran(folder, model, x=np.zeros((1, 1, 1, 1), np.float32))


@past(MEMORY)
def padding_of_any_size(bench: Path, folder: Path) -> Words:
    pads = {"pads": np.array([0, 0, 0, 2**40], np.int64)}
    return ran(folder, tiny_model([one("Pad", ("x", "pads"))], {"x": [1, 4]}, ["y"], pads))


@past(MEMORY)
def many_large_constants(bench: Path, folder: Path) -> Words:
    """Each of them may be folded, and all together are too much."""
    nodes, last = [], "x"
    for index in range(24):
        nodes.append(helper.make_node("Expand", ["one", "sizes"], [f"wide{index}"]))
        nodes.append(helper.make_node("Exp", [f"wide{index}"], [f"c{index}"]))
        nodes.append(helper.make_node("Add", [last, f"c{index}"], [f"y{index}"]))
        last = f"y{index}"
    constants = {"one": np.ones((1, 1), np.float32), "sizes": np.array([4000, 4000], np.int64)}
    return ran(folder, tiny_model(nodes, {"x": [4000, 1]}, [last], constants))


@past(MEMORY)
def external_data_of_any_size(bench: Path, folder: Path) -> Words:
    """A file of many gigabytes without a byte on the disk."""
    model = tiny_model([one("Add", ("x", "w"))], {"x": [1]}, ["y"], {"w": np.ones(1, np.float32)})
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.dims[:] = [1 << 33]
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="weights.bin")
    with (folder / "weights.bin").open("wb") as stream:
        stream.truncate(4 << 33)
    return inspected(folder, model)


@past(BAD_FILE)
def time_that_is_none(bench: Path, folder: Path) -> Words:
    (folder / "recipe.yaml").write_text("!!timestamp 99999-99-99\n")
    return "recipe", "show", str(folder / "recipe.yaml")


@past(BAD_FILE)
def infinity_for_an_opset(bench: Path, folder: Path) -> Words:
    shutil.copytree(bench / "image.quantized", folder / "image.quantized")
    manifest = folder / "image.quantized" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"opset": 17', '"opset": -Infinity'))
    return "explain", str(folder / "image.quantized"), "Conv_0"


@past(OK)
def value_without_channels(bench: Path, folder: Path) -> Words:
    """Its channels are none, and have no elements."""
    node = one("Slice", ("x", "zero", "zero", "one"))
    bounds = {"zero": np.array([0], np.int64), "one": np.array([1], np.int64)}
    _, path, *_ = ran(folder, tiny_model([node], {"x": [1, 3, 4]}, ["y"], bounds))
    return "profile", path, "--data", str(folder / "data.npz"), "-o", "made.yaml"


@past(BAD_FILE)
def number_without_digits(bench: Path, folder: Path) -> Words:
    (folder / "recipe.yaml").write_text("schema: !!int _\n")
    return "recipe", "show", str(folder / "recipe.yaml")


@past(BAD_FILE)
def sum_that_another_runtime_cannot_size(bench: Path, folder: Path) -> Words:
    """onnxruntime told of it in colours."""
    nodes = [
        helper.make_node("ConstantOfShape", ["sizes"], ["zeros"]),
        helper.make_node("Add", ["zeros", "row"], ["moved"]),
        one("Reshape", ("moved", "shape")),
    ]
    constants = {"sizes": np.array([1, 2**63 - 1], np.int64), "row": np.ones(12, np.float32)}
    model = tiny_model(nodes, {"x": [1]}, ["y"], {**constants, "shape": np.array([1, 12], np.int64)})
    return ran(folder, model)


@past(OK)
def transposed_convolution_of_no_images(bench: Path, folder: Path) -> Words:
    """Its loop over images has no turns."""
    weights = {"w": np.ones((6, 4, 3, 3), np.float32)}
    model = tiny_model([one("ConvTranspose", ("x", "w"))], {"x": [0, 6, 9, 8]}, ["y"], weights)
    return "compile", inspected(folder, model)[1], "-o", "made.qglow"


@past(BAD_FILE)
def constants_of_another_type_in_a_directory(bench: Path, folder: Path) -> Words:
    """The text of the int8 graph says int8, and the file beside it has reals."""
    shutil.copytree(bench / "image.quantized", folder / "image.quantized")
    path = folder / "image.quantized" / "constants.npz"
    with np.load(path) as archive:
        arrays = {name: archive[name].astype(np.float32) for name in archive.files}
    np.savez(path, **arrays)
    return "bisect", str(folder / "image.quantized"), "--data", str(folder / "image.npz")


@past(UNSUPPORTED)
def result_of_a_negative_size(bench: Path, folder: Path) -> Words:
    """onnxruntime infers it from a pad that is larger than the result."""
    weights = {"w": np.ones((6, 4, 3, 3), np.float32)}
    node = one("ConvTranspose", ("x", "w"), pads=[1, 0, 2147483647, 1], strides=[2, 2])
    return ran(folder, tiny_model([node], {"x": [2, 6, 9, 8]}, ["y"], weights))


@past(BAD_FILE)
def array_of_more_bytes_than_there_are_numbers(bench: Path, folder: Path) -> Words:
    """numpy warns on its own when the size of a mapped array overflows."""
    (folder / "data.npy").write_bytes(header("<f4", "(4611686018427387904, 4)"))
    model, data = str(folder / "image.onnx"), str(folder / "data.npy")
    return "profile", "sufficiency", model, "--data", data, "--resamples", "10", "-o", "made.json"


@past(UNSUPPORTED)
def slice_of_a_negative_size(bench: Path, folder: Path) -> Words:
    """onnx's inference ends the process on it."""
    sizes = {"sizes": np.array([-5, 24]), "starts": np.array([0, 0]), "ends": np.array([1, 12])}
    nodes = [helper.make_node("Expand", ["x", "sizes"], ["wide"]), one("Slice", ("wide", "starts", "ends"))]
    return inspected(folder, tiny_model(nodes, {"x": [1, 24]}, ["y"], sizes))


@past(UNSUPPORTED)
def split_of_more_outputs_than_parts(bench: Path, folder: Path) -> Words:
    """onnx's inference reads beyond a list of it."""
    node = helper.make_node("Split", ["x"], ["z", "w", "y"], axis=-1, num_outputs=2)
    return inspected(folder, tiny_model([node], {"x": [2, 8]}, ["y"], opset=18))


@past(BAD_FILE)
def region_that_is_no_number(bench: Path, folder: Path) -> Words:
    """Places of the elements were taken from it."""
    constants = {"roi": np.array([0, 0, np.nan, 1], np.float32), "n": np.array([3, 7])}
    constants["k"] = np.zeros(0, np.float32)
    node = one("Resize", ("x", "roi", "k", "n"), coordinate_transformation_mode="tf_crop_and_resize")
    return ran(folder, tiny_model([node], {"x": [4, 5]}, ["y"], constants))


@past(UNSUPPORTED)
def blocks_of_any_size(bench: Path, folder: Path) -> Words:
    """No array has the shape that onnxruntime infers, though it has no elements."""
    node = one("DepthToSpace", blocksize=2147483647)
    return ran(folder, tiny_model([node], {"x": [2, 8, 4, 6]}, ["y"]))
