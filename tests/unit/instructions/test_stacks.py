"""What a code generator asks of stacks."""

from __future__ import annotations

from qglow.core.passes import PassLog
from qglow.instructions.liveness import Usage
from qglow.instructions.passes.stacking import StackDataParallel, is_internal, stacks
from qglow.instructions.text import parse_program

CHAIN = """function f
declare {
  %x = WeightVar float<4> mutable
  %y = WeightVar float<4> mutable
  %z = WeightVar float<1> mutable
}
code {
  %a = allocactivation float<4>
  %First = tanh @out %a, @in %x
  %b = allocactivation float<4>
  %Second = sigmoid @out %b, @in %a
  %Third = elementadd @out %y, @in %a, @in %b
  %Part = extract @out %z, @in %b {offsets=[3]}
  %free_a = deallocactivation @out %a
  %free_b = deallocactivation @out %b
}
"""


def test_stacks_group_what_shares_a_loop() -> None:
    program = parse_program(CHAIN)
    StackDataParallel().run(program, PassLog())
    groups = stacks(program)
    assert [[i.name for i in group] for group in groups] == [["First", "Second", "Third"], ["Part"]]


def test_only_values_of_the_stack_alone_need_no_store() -> None:
    program = parse_program(CHAIN)
    StackDataParallel().run(program, PassLog())
    stack = stacks(program)[0]
    usage = Usage(program)
    assert [is_internal(usage, stack, n) for n in range(3)] == [True, False, False]


IN_PLACE = """function f
declare {
  %x = WeightVar float<4> mutable
  %y = WeightVar float<4> mutable
}
code {
  %a = allocactivation float<4>
  %Before = tanh @out %a, @in %x
  %Copy = copy @out %y, @in %a
  %First = elementmul @out %a, @in %a, @in %x
  %Second = elementadd @out %a, @in %a, @in %x
  %Last = elementadd @out %y, @in %a, @in %x
  %free = deallocactivation @out %a
}
"""


def test_results_in_the_place_of_other_values_need_no_store_where_none_is_left() -> None:
    program = parse_program(IN_PLACE)
    StackDataParallel().run(program, PassLog())
    stack = stacks(program)[-1]
    assert [i.name for i in stack] == ["First", "Second", "Last"]
    assert [is_internal(Usage(program), stack, n) for n in range(3)] == [True, True, False]


def test_a_result_that_is_read_behind_the_stack_is_stored_once() -> None:
    program = parse_program(
        IN_PLACE.replace("%Last = elementadd @out %y, @in %a, @in %x", "%Last = copy @out %y, @in %a")
    )
    StackDataParallel().run(program, PassLog())
    stack = next(group for group in stacks(program) if group[0].name == "First")
    assert [i.name for i in stack] == ["First", "Second"]
    assert [is_internal(Usage(program), stack, n) for n in range(2)] == [True, False]


def test_a_stack_has_a_greatest_length() -> None:
    program = parse_program(CHAIN)
    StackDataParallel(max_length=2).run(program, PassLog())
    assert [len(group) for group in stacks(program)] == [2, 1, 1]
