"""Presentation of a search: a table, and the comments of the recipe that it writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from qglow.display.blocks import Block, Paragraph, Section, byte_count, decibels, milliseconds, table
from qglow.display.lines import brief, listed
from qglow.tuning.mix import Mix
from qglow.tuning.search import Figures, Goal, Trial, pareto, told_goal

_PER_CENT = ("top-1", "agreement")


def tuning_section(trials: Sequence[Trial], best: Trial | None, goal: Goal | None = None) -> Section:
    """The trials that no other beats in time and accuracy; the one that keeps to the goal is marked.

    goal: what was asked for, to tell where the samples could not tell it.
    """
    base = next(trial for trial in trials if trial.steps == 0)
    measure = base.figures.measure
    shown = pareto(trials)
    halves = ("in 16-bit float>",) if any(_in_half(trial) for trial in shown) else ()
    precisions = ("more in int16>", "in float>", *halves)
    titles = (*precisions, f"{measure}>", "drop>", "SQNR>", "latency>", "relative>", "constants>", "")
    rows = [_row(trial, base.figures, trial is best, bool(halves)) for trial in shown]
    caption = "Those that no other beats in both time and accuracy, the fastest first; drop is against float"
    told = "" if goal is None else told_text(goal, base.figures)
    blocks: tuple[Block, ...] = (Paragraph(f"{told}."),) if told else ()
    blocks = (*blocks, table(titles, rows, caption))
    if best is not None and best.mix:
        blocks = (*blocks, Paragraph(f"Chosen: {nodes_text(best.mix)}."))
    return Section(f"{len(trials)} int8 models measured", blocks)


def _in_half(trial: Trial) -> int:
    return len(trial.mix.float16) + len(trial.mix.bfloat16)


def _row(trial: Trial, base: Figures, is_best: bool, has_halves: bool) -> tuple[str, ...]:
    figures = trial.figures
    return (
        str(len(trial.mix.int16)),
        str(len(trial.mix.keep_float)),
        *([str(_in_half(trial))] if has_halves else []),
        accuracy_text(figures, figures.accuracy),
        "-" if figures.drop is None else f"{figures.drop:.2f}",
        decibels(figures.sqnr_db),
        milliseconds(figures.latency_ms),
        f"{figures.latency_ms / base.latency_ms:.2f}",
        byte_count(figures.weight_bytes),
        "chosen" if is_best else "",
    )


def accuracy_text(figures: Figures, value: float) -> str:
    """An accuracy in its unit."""
    if figures.measure in _PER_CENT:
        return f"{value:.2f} %"
    return decibels(value) if figures.measure == "SQNR" else f"{value:.6g}"


def trial_text(trial: Trial, base: Figures) -> str:
    """Describe a trial in one line."""
    figures = trial.figures
    return f"{trial.mix}: " + ", ".join(_parts(figures, base))


def nodes_text(mix: Mix) -> str:
    """The first nodes of each type of a mix, in one line; those of a region stand behind its path."""
    return "; ".join(f"{dtype} for {listed(map(brief, names))}" for dtype, names in mix.by_type() if names)


def told_text(goal: Goal, plain: Figures) -> str:
    """A sentence, without its stop, on a goal that the samples cannot tell; "" where they can.

    plain: the figures of plain int8, measured on them.
    """
    followed = told_goal(goal, plain)
    if followed == goal or followed.min_sqnr_db is None:
        return ""
    return (
        f"A drop of {goal.max_drop:g} is noise on these samples, which tell {plain.drop_error:.2f} or more: "
        f"the search follows SQNR, {decibels(followed.min_sqnr_db)} or more, with a measured drop of at most "
        f"{followed.max_drop:.2f}; more samples tell more"
    )


def goal_text(goal: Goal) -> str:
    """A goal in words."""
    limits = (
        ("a drop of at most {:g}", goal.max_drop),
        ("a metric of at least {:g}", goal.min_metric),
        ("a metric of at most {:g}", goal.max_metric),
        ("SQNR of at least {:g} dB", goal.min_sqnr_db),
        ("at most {:g} ms a call", goal.max_latency_ms),
    )
    return " and ".join(text.format(value) for text, value in limits if value is not None)


def recipe_comments(trial: Trial, base: Figures, goal: Goal, data: str, samples: int) -> str:
    """YAML comments that tell the goal of a recipe that was found, and what it reached."""
    told = told_text(goal, base)
    lines = [
        f"Found by qglow tune for {goal_text(goal)}: {trial.mix}.",
        *([f"{told}."] if told else []),
        *(f"  {part}" for part in _parts(trial.figures, base)),
        f"Measured on {samples} samples of {data}, which also chose it: what counts are others.",
    ]
    return "".join(f"# {line}\n" for line in lines)


def _parts(figures: Figures, base: Figures) -> Iterator[str]:
    accuracy = f"{figures.measure} {accuracy_text(figures, figures.accuracy)}"
    if figures.reference is not None:
        accuracy += f" (float {accuracy_text(figures, figures.reference)})"
    yield accuracy
    if figures.measure != "SQNR":
        yield f"SQNR {decibels(figures.sqnr_db)}"
    ratio = figures.latency_ms / base.latency_ms
    yield f"{milliseconds(figures.latency_ms)} a call, {ratio:.2f} times that without them"
