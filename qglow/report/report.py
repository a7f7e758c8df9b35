"""The report of one model: what is known, as data, and the files that tell it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from qglow.core.files import write_atomically
from qglow.core.types import TensorType
from qglow.core.version import __version__
from qglow.display.blocks import Section
from qglow.display.document import Document
from qglow.display.html import to_html
from qglow.display.markdown import to_markdown
from qglow.display.node_panel import NodePanel
from qglow.display.plain import to_plain
from qglow.graph.graph import Graph
from qglow.quantization.report import QuantizationReport
from qglow.report.bench import BenchResult
from qglow.report.comparison_result import Comparison, comparison_section
from qglow.report.decoding import DecodingResult
from qglow.report.diagnosis import Diagnosis, diagnosis_section
from qglow.report.layer_report import LayerReport, layer_section
from qglow.report.node_kernels import NodeCode
from qglow.report.node_panels import node_panels
from qglow.report.pictures import layer_picture
from qglow.report.quantization_sections import picture_sections, quantization_sections
from qglow.report.sections import model_section, settings_section
from qglow.report.verdict import ModelVerdict, verdict_section

FORMAT = 1


@dataclass(frozen=True)
class ModelInfo:
    """Model that a report is about.

    notes: sentences on what the import decided. untyped: names of outputs whose shapes data decides.
    """

    name: str
    file: str
    sha256: str
    opset: int
    inputs: Mapping[str, TensorType]
    outputs: Mapping[str, TensorType]
    notes: tuple[str, ...] = ()
    untyped: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """Results of one model; whatever has not been computed is None.

    `recipe` is the effective recipe as YAML, `pipeline` the graph passes as text, `data` names the
    evaluation data. Nothing here depends on time, so that the same inputs give the same files.
    """

    model: ModelInfo
    recipe: str
    pipeline: str
    quantization: QuantizationReport | None = None
    data: str = ""
    comparison: Comparison | None = None
    layers: LayerReport | None = None
    diagnosis: Diagnosis | None = None
    verdict: ModelVerdict | None = None


def document_of(
    report: Report, graph: Graph | None = None, kernels: Mapping[str, NodeCode] | None = None
) -> Document:
    """The report for people; with the int8 graph that it is about, a drawing of it too.

    kernels: of the nodes by their names, for the drawing.
    """
    panels: tuple[NodePanel, ...] = ()
    if graph is not None and report.quantization is not None:
        panels = node_panels(graph, report.quantization, report.layers, report.diagnosis, kernels)
    sections: list[Section] = [] if report.verdict is None else [verdict_section(report.verdict)]
    about = [("evaluated on", report.data)] if report.data else []
    sections.append(model_section(report.model.file, [*model_facts(report.model), *about]))
    if report.comparison is not None:
        sections.append(comparison_section(report.comparison))
    if report.quantization is not None:
        sections += quantization_sections(report.quantization)
        sections += picture_sections(report.quantization, panels)
    if report.layers is not None:
        chart = layer_picture(report.layers)
        layers = layer_section(report.layers)
        sections.append(Section(layers.title, (chart, *layers.blocks)))
    if report.diagnosis is not None:
        sections.append(diagnosis_section(report.diagnosis))
    sections.append(settings_section(report.recipe, report.pipeline))
    return Document(f"qglow report: {report.model.name}", tuple(sections), panels)


def to_json(report: Report) -> str:
    """Everything in the report as JSON with sorted keys; infinities and NaN are strings."""
    content = {"format": FORMAT, "qglow": __version__, **to_plain(report)}
    return json.dumps(content, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n"


def timings_json(timings: BenchResult | DecodingResult) -> str:
    """Latencies as JSON; they differ from run to run, so they have a file of their own."""
    content = {"format": FORMAT, "qglow": __version__, **to_plain(timings)}
    return json.dumps(content, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n"


def write_report(
    directory: Path,
    report: Report,
    timings: BenchResult | None = None,
    graph: Graph | None = None,
    kernels: Mapping[str, NodeCode] | None = None,
) -> list[Path]:
    """Write report.html, report.md and report.json, and timings.json where there are timings.

    graph: the int8 graph, for a drawing. kernels: of its nodes by name. Each file appears whole or not.
    Raises InputFileError if they cannot be written.
    """
    document = document_of(report, graph, kernels)
    contents = {"report.html": to_html(document), "report.md": to_markdown(document)}
    if timings is not None:
        contents["timings.json"] = timings_json(timings)
    contents["report.json"] = to_json(report)
    for name, text in contents.items():
        write_atomically(directory / name, text)
    return [directory / name for name in contents]


def model_facts(model: ModelInfo) -> list[tuple[str, str]]:
    """Facts of a model, for people."""
    facts = [("SHA-256", model.sha256), ("opset", str(model.opset))]
    facts += [(f"input {name}", str(kind)) for name, kind in model.inputs.items()]
    facts += [(f"output {name}", str(kind)) for name, kind in model.outputs.items()]
    facts += [(f"output {name}", "of a shape that data decides") for name in model.untyped]
    return facts + [("note", note) for note in model.notes]
