"""What every target has to do, and what the registry says of those that cannot be used."""

from __future__ import annotations

import subprocess
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from qglow.cli.main import main
from qglow.core.errors import InputFileError, UsageError
from qglow.core.types import Array
from qglow.graph.interpreter import Interpreter
from qglow.instructions.interpreter import ArenaInterpreter
from qglow.instructions.passes import optimize
from qglow.instructions.plan import plan_memory
from qglow.instructions.program import Program
from qglow.instructions.verifier import verify_program
from qglow.kernels.emit.operand import to_logical, to_physical
from qglow.lowering import lower
from qglow.report.stages import stage_text
from qglow.runtime.artefact import load_artefact
from qglow.runtime.executable import Executable
from qglow.runtime.signature import Signature
from qglow.targets import capabilities
from qglow.targets.listing import list_targets
from qglow.targets.protocol import BundleTarget, Emission, RunningTarget, Target, TimedTarget
from qglow.targets.registry import (
    find_or_select,
    find_target,
    machine_for_estimates,
    running_targets,
    select_target,
    target_names,
)
from qglow.targets.rooms import ROOMS, builtin_names
from qglow.toolchain import CompileOptions, compile_graph, compile_lowered
from qglow.toolchain.artefacts import load_executable
from qglow.toolchain.files import suffix_for, write_graph
from tests.runtimes import PLAIN, compare
from tests.suite.problem import Maker, Problem
from tests.targets import register
from tests.test_runtimes import FLOAT_TOLERANCE, MAKERS

DIGITS = Path(__file__).parents[1] / "calib_data" / "digits.onnx"
NAMES = [name for room in ROOMS for name in (*room.names, *room.for_tests)]
RUNNABLE = [name for name in NAMES if find_target(name).refusal() is None]


def draw(name: str, make: Maker) -> Problem:
    return make(np.random.default_rng(zlib.crc32(name.encode())))


def _exact_problems() -> list[Problem]:
    """One of integers or of exact floats from each family."""
    found: dict[str, Problem] = {}
    for name, make in MAKERS:
        family = name.split("-")[0]
        if family in ("conv", "linear", "pool", "elementwise") and family not in found:
            problem = draw(name, make)
            if problem.exact:
                found[family] = problem
    return list(found.values())


PROBLEMS = _exact_problems()


def lowered(problem: Problem, target: Target) -> Program:
    program = lower(problem.graph, target.backend)
    optimize(program)
    return program


def bound(executable: Executable, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """What a bound call gives, on arrays in the form of native code."""
    bias = executable.activation_bias
    given = {name: to_physical(inputs[name], kind, bias) for name, kind in executable.inputs.items()}
    taken = {
        name: to_physical(np.zeros(kind.shape, kind.element.dtype), kind, bias)
        for name, kind in executable.outputs.items()
    }
    executable.bind(given, taken)()
    return {
        name: to_logical(array, executable.outputs[name], bias).reshape(array.shape)
        for name, array in taken.items()
    }


def test_problems_are_of_several_families() -> None:
    assert len(PROBLEMS) == 4


@pytest.mark.parametrize("name", NAMES)
def test_target_describes_itself(name: str) -> None:
    target = find_target(name)
    assert isinstance(target, Target) and find_target(name) is target
    description = target.description
    assert description.name == name and len(description.summary) > 10
    assert isinstance(target, RunningTarget | BundleTarget)
    machine = target.machine
    assert machine is None or (machine.name, machine.cpu) == (name, description.cpu)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
@pytest.mark.parametrize("name", NAMES)
def test_target_goes_all_the_way(name: str, problem: Problem) -> None:
    """Lowers, selects, plans, emits; then runs with the reference's bits, or refuses in words."""
    target = find_target(name)
    program = lowered(problem, target)
    target.select(program)
    verify_program(program, f"after kernel selection for {name}")
    plan = target.plan(program)
    assert program.arena_size is not None and plan.used >= plan.bound
    for form in target.forms:
        assert target.forms[form](program)
    assert isinstance(target, RunningTarget)
    code = target.emit(program, Emission(cache=False))
    assert (code.target, code.compiler) == (name, target.version())
    assert code.signature == Signature.of(program) and code.arena_size == program.arena_size
    if target.refusal() is not None:
        with pytest.raises(UsageError, match=name):
            target.load(code, 1, lambda: program)
        return
    executable = target.load(code, 1, lambda: program)
    assert executable.isa == name and executable.program is program
    expected = Interpreter(problem.graph).run(problem.inputs)
    for actual in (executable(problem.inputs), bound(executable, problem.inputs)):
        for output, wanted in expected.items():
            compare(actual[output], wanted, f"{problem.name}: {output} on {name}")


@pytest.mark.parametrize("name", RUNNABLE)
def test_target_shows_its_activations(name: str) -> None:
    problem = PROBLEMS[0]
    observed = compile_graph(problem.graph, CompileOptions(isa=name, observe=True, cache=False))
    observed(problem.inputs)
    program = lower(problem.graph)
    plan_memory(program, reuse=False)
    interpreter = ArenaInterpreter(program)
    interpreter.run(problem.inputs)
    found, expected = observed.activations(), interpreter.activations()
    common = [key for key in expected if key in found and found[key].dtype == expected[key].dtype]
    assert common
    for key in common:
        compare(found[key], expected[key], key)


@pytest.mark.parametrize("name", NAMES)
def test_host_is_held_to_what_a_target_needs(name: str) -> None:
    target = find_target(name)
    refused = target.refusal()
    if refused is None:
        assert select_target(name) is target
        return
    with pytest.raises(UsageError, match=f"this host cannot run ISA '{name}'; it has .*{refused}"):
        select_target(name)
    with pytest.raises(UsageError, match=f"this host cannot run ISA '{name}'"):
        capabilities.running(target)
    assert find_or_select(name) is target


@pytest.mark.parametrize(("name", "make"), MAKERS, ids=[name for name, _ in MAKERS])
def test_reference_runs_the_suite(name: str, make: Maker) -> None:
    """The reference target, called like any other, gives what the graph means."""
    problem = draw(name, make)
    program = lower(problem.graph)
    optimize(program)
    expected = Interpreter(problem.graph).run(problem.inputs)
    executable = compile_lowered(program, CompileOptions(isa="reference"))
    actual = executable(problem.inputs)
    tolerance = 0.0 if problem.exact else FLOAT_TOLERANCE
    for output, wanted in expected.items():
        compare(actual[output], wanted, f"{problem.name}: {output}", tolerance)


def test_the_fastest_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QGLOW_ISA", raising=False)
    own = running_targets()
    assert select_target() is own[-1] and find_or_select() is own[-1]
    names = [target.description.name for target in own]
    assert names == [name for name in builtin_names() if name in names] and "reference" not in names
    monkeypatch.setenv("QGLOW_ISA", "reference")
    assert select_target().description.name == "reference"
    assert select_target(PLAIN).description.name == PLAIN
    monkeypatch.setenv("QGLOW_ISA", "amx")
    assert find_or_select().description.name == "amx" and find_or_select("avx2").description.name == "avx2"


def test_processor_without_kernels_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QGLOW_ISA", raising=False)
    monkeypatch.setattr("qglow.targets.registry.platform.machine", lambda: "vax")
    with pytest.raises(UsageError, match="kernels for no vax processor yet"):
        select_target()
    assert select_target("reference").description.name == "reference"


def test_unknown_name_is_refused_with_those_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, simulator="tests.targets:SIMULATOR")
    with pytest.raises(
        UsageError, match="no target is called 'sse9'; there are generic, .*reference, simulator"
    ):
        find_target("sse9")


def test_estimates_depend_on_no_host() -> None:
    assert machine_for_estimates().name == "avx512vnni"


def test_what_a_target_lacks_is_said() -> None:
    reference = find_target("reference")
    with pytest.raises(UsageError, match="'reference' has no kernels"):
        capabilities.machine(reference)
    with pytest.raises(UsageError, match="'reference' has no clock"):
        capabilities.timed(reference)
    with pytest.raises(UsageError, match="'reference' has no text in the form 'llvm'"):
        capabilities.form(reference, "llvm")
    assert isinstance(find_target("generic"), TimedTarget)


def test_registered_target_is_used_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, simulator="tests.targets:SIMULATOR", paper="tests.targets:PAPER")
    assert target_names() == [*builtin_names(), "paper", "simulator"]
    problem = PROBLEMS[0]
    executable = compile_graph(problem.graph, CompileOptions(isa="simulator"))
    for output, wanted in Interpreter(problem.graph).run(problem.inputs).items():
        compare(executable(problem.inputs)[output], wanted, output)
    with pytest.raises(UsageError, match="cannot run ISA 'paper'.*people read it"):
        compile_graph(problem.graph, CompileOptions(isa="paper"))


def test_registered_target_does_not_displace_one_of_qglow(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, generic="tests.targets:SIMULATOR")
    assert find_target("generic").machine is not None


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("tests.no_such_module:TARGET", "cannot be loaded"),
        ("tests.targets:NO_SUCH", "cannot be loaded"),
        ("tests.targets:NO_TARGET", "is no qglow.targets.protocol.Target"),
        ("tests.targets:PAPER", "calls itself 'paper'"),
    ],
)
def test_registered_target_that_cannot_be_used_is_named(
    monkeypatch: pytest.MonkeyPatch, value: str, said: str
) -> None:
    register(monkeypatch, broken=value)
    with pytest.raises(UsageError, match=f"target 'broken' .*{said}"):
        find_target("broken")


def test_rooms_are_imported_when_they_are_used() -> None:
    code = (
        "import sys; from qglow.targets import registry; registry.target_names();"
        "registry.find_target('reference'); assert 'qglow.targets.x86.targets' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_bundle_is_written_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    register(monkeypatch, paper="tests.targets:PAPER")
    folder, options = tmp_path / "deep" / "out.bundle", CompileOptions(isa="paper")
    assert (suffix_for("paper"), suffix_for("reference"), suffix_for(None)) == (".bundle", ".qglow", ".qglow")
    write_graph(folder, PROBLEMS[0].graph, options)
    assert [file.name for file in folder.iterdir()] == ["program.txt"]
    assert (folder / "program.txt").read_text().startswith("function ")
    with pytest.raises(InputFileError, match="out.bundle: it is not empty"):
        write_graph(folder, PROBLEMS[0].graph, options)
    monkeypatch.setattr("tests.targets.Paper.write", lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        write_graph(tmp_path / "half", PROBLEMS[0].graph, options)
    assert [file.name for file in tmp_path.iterdir()] == ["deep"]


def test_language_of_a_target_is_a_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, paper="tests.targets:PAPER")
    graph = PROBLEMS[0].graph
    assert stage_text(graph, "text", "paper").startswith("function ")
    for isa in (None, "generic"):
        with pytest.raises(UsageError, match="'text' is not one of graph, .*asm$"):
            stage_text(graph, "text", isa)


def test_program_of_the_reference_is_a_file_without_code(tmp_path: Path) -> None:
    path, problem = tmp_path / "model.qglow", PROBLEMS[0]
    write_graph(path, problem.graph, CompileOptions(isa="reference"))
    assert load_artefact(path).variant("reference", find_target("reference").version()) is None
    expected = Interpreter(problem.graph).run(problem.inputs)
    for trust in (False, True):
        for isa in ("reference", PLAIN):
            executable = load_executable(path, CompileOptions(isa=isa), trust)
            assert executable.isa == isa
            for output, wanted in expected.items():
                compare(executable(problem.inputs)[output], wanted, f"{output} on {isa}")


def test_command_writes_bundles(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    register(monkeypatch, paper="tests.targets:PAPER")
    monkeypatch.chdir(tmp_path)
    assert main(["compile", str(DIGITS), "--isa", "paper"]) == 0
    assert capsys.readouterr().out.startswith("digits.bundle: ")
    assert (tmp_path / "digits.bundle" / "program.txt").is_file()
    assert main(["compile", str(DIGITS), "--isa", "paper"]) == 4
    assert "it is not empty" in capsys.readouterr().err


def test_all_targets_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QGLOW_ISA", PLAIN)
    register(monkeypatch, paper="tests.targets:PAPER", broken="tests.targets:NO_TARGET")
    found = {target.name: target for target in list_targets()}
    assert list(found) == [*builtin_names(), "broken", "paper"]
    assert [name for name, target in found.items() if target.is_default] == [PLAIN]
    assert found["avx2"].cpu == "x86-64-v3" and found["avxvnni"].features == ("avxvnni",)
    assert found["reference"].runs_here and not found["reference"].cpu
    assert found["paper"].writes_bundles and found["paper"].refusal == "people read it"
    assert not found["broken"].runs_here and "is no qglow.targets.protocol.Target" in found["broken"].refusal


def test_listing_needs_no_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QGLOW_ISA", "sse9")
    assert not any(target.is_default for target in list_targets())


def test_command_lists_targets(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("QGLOW_ISA", "reference")
    register(monkeypatch, paper="tests.targets:PAPER")
    assert main(["targets"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = {line.split()[0]: line for line in lines if line.split()}
    assert set(target_names()) <= set(rows)
    assert "yes, by default" in rows["reference"] and "no: people read it" in rows["paper"]
    assert "x86-64-v3" in rows["avx2"]


def test_help_names_targets(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert ", ".join(name for room in ROOMS for name in room.names) in said
