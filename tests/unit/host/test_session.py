"""Small models in onnxruntime: what they give, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, parser

from qglow.core.errors import DataError, ModelError, UsageError
from qglow.core.types import ElementType
from qglow.host.nodes import HostedNodes
from qglow.host.session import decode, encode, prepare, require_host, result_types


def model_of(op_type: str, external: bool = False) -> bytes:
    graph = helper.make_graph(
        [helper.make_node(op_type, ["i0"], ["v0"])],
        "opaque",
        [helper.make_tensor_value_info("i0", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("v0", TensorProto.UNDEFINED, None)],
    )
    if external:
        tensor = helper.make_tensor("c0", TensorProto.FLOAT, [1], [1.0])
        tensor.ClearField("float_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="secret")
        graph.initializer.append(tensor)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    del model.graph.output[:]
    model.graph.output.add(name="v0")
    return bytes(model.SerializeToString())


def test_results_and_their_types() -> None:
    model = model_of("Softplus")
    assert result_types(model) == [(ElementType.FLOAT, (2, 3))]
    (found,) = prepare(encode(model))([np.zeros((2, 3), np.float32)])
    np.testing.assert_allclose(found, np.full((2, 3), np.log(2)), rtol=1e-6)


def test_a_shape_that_data_decides_is_unknown() -> None:
    assert result_types(model_of("NonZero")) == [(ElementType.INT64, (2, None))]


def test_results_of_another_shape_are_an_error() -> None:
    nodes = HostedNodes("NonZero", encode(model_of("NonZero")), ("float<2 x 3>",), ("i64<2 x 4>",))
    with pytest.raises(DataError, match=r"NonZero gave int64\[2, 6\] for these inputs, not i64<2 x 4>"):
        nodes.run([np.ones((2, 3), np.float32)])


def test_models_that_onnxruntime_refuses_are_an_error() -> None:
    with pytest.raises(ModelError, match="onnxruntime cannot load it"):
        prepare(encode(model_of("NoSuchOperator")))
    with pytest.raises(DataError, match="onnxruntime cannot run it on these inputs"):
        prepare(encode(model_of("Softplus")))([np.zeros((2, 3), np.int64)])


def test_text_that_is_no_model_is_refused() -> None:
    with pytest.raises(ModelError, match="an opaque node holds no model"):
        decode("no base64!")


def test_a_model_that_reads_files_is_refused() -> None:
    with pytest.raises(ModelError, match="reads its data from another file; refused"):
        decode(encode(model_of("Softplus", external=True)))


@pytest.mark.parametrize("change", [{"kinds": 3}, {"arguments": (3,)}, {"results": ()}])
def test_attributes_of_other_types_are_refused(change: dict[str, object]) -> None:
    whole = {"kinds": "A", "model": "", "arguments": (), "results": ("float<1>",)}
    with pytest.raises(ValueError, match="kinds and model are texts"):
        HostedNodes(**whole | change)  # type: ignore[arg-type]


def test_nodes_are_named_where_onnxruntime_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(UsageError, match="'nms', 'lstm' run in onnxruntime, which is missing: pip install"):
        require_host(["nms", "lstm"])


BRANCHES = """<ir_version: 8, opset_import: ["" : 16]>
g (float[2,3] x) => (y) <bool yes = {1}, int64 two = {2}, int64[1] one = {1}, int64[1] zero = {0}> {
  y = If (yes) <
    then_branch = a () => (result) {
      sizes = Shape (x)
      rank = Size (sizes)
      is_matrix = Equal (rank, two)
      wide = If (is_matrix) <
        then_branch = b () => (wider) { wider = Unsqueeze (x, zero) },
        else_branch = c () => (as_wide) { as_wide = Identity (x) }
      >
      narrow = If (is_matrix) <
        then_branch = d () => (found) {
          its_sizes = Shape (wide)
          is_one = Equal (its_sizes, one)
          found = If (is_one) <
            then_branch = e () => (narrower) { narrower = Squeeze (wide, zero) },
            else_branch = f () => (as_narrow) { as_narrow = Identity (wide) }
          >
        },
        else_branch = g () => (kept) { kept = Identity (wide) }
      >
      result = Identity (narrow)
    },
    else_branch = h () => (other) { other = Identity (x) }
  >
}"""
"""Branches in a branch that a constant decides: onnxruntime 1.32 ends the process where it inlines them."""


def test_branches_in_a_branch_do_not_end_the_process(tmp_path: Path) -> None:
    path = tmp_path / "branches.onnx"
    path.write_bytes(parser.parse_model(BRANCHES).SerializeToString())
    code = "import sys, pathlib; from qglow.host.session import result_types; "
    code += "print(result_types(pathlib.Path(sys.argv[1]).read_bytes()))"
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.count("ElementType.FLOAT")) == (0, 1), done.stderr
