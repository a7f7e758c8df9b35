"""Mixed precision: the nodes that have to be int16 or float so that an int8 model reaches a goal."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from qglow.api.clusters import jobs_at
from qglow.api.keywords import TuneKeywords
from qglow.api.model import Model
from qglow.api.options import TuneOptions
from qglow.core.interruption import Interrupted
from qglow.core.keywords import taking
from qglow.core.progress import Phases
from qglow.graph.missing import missing_inputs
from qglow.profiling.profile import Profile
from qglow.recipe.schema import Recipe
from qglow.report.runner import real_types
from qglow.report.task_metric import data_labels, open_metric
from qglow.runtime.cores import choose_threads
from qglow.toolchain import CompileOptions
from qglow.toolchain.calibration import CalibrationSamples
from qglow.toolchain.samples import Data, data_name
from qglow.toolchain.undecided import UndecidedModel
from qglow.tuning.result import Tuning
from qglow.tuning.search import Goal, Trial
from qglow.tuning.tuner import Tuner


@taking(TuneOptions)
def tune(
    model: Model,
    profile: Profile,
    data: Data,
    goal: Goal,
    *,
    calibration_data: Data | CalibrationSamples,
    recipe: Recipe | None = None,
    progress: Phases | None = None,
    told: Callable[[Trial], None] = lambda trial: None,
    interrupted: Interrupted | None = None,
    **options: Unpack[TuneKeywords],
) -> Tuning:
    """Find the nodes to keep float or make int16 so that the int8 model reaches a goal at the least latency.

    The effect of every int8 error on the outputs is predicted on calibration samples. These predictions and
    estimated times give the order in which nodes become int16 or float. How many have to is found by
    measuring int8 models on `data`: accuracy by labels, by `metric`, or else by agreement with float, and
    latency in turns with the model in plain int8. Results on `data` are optimistic, because it chose the
    nodes: measure the final accuracy on other data.

    calibration_data: samples of the profile. recipe, effort: as for `Model.quantize`; the search adds to the
    recipe's keep_float and rules, or only int16 rules with assert_all_quantized. select, samples, labels,
    metric, isa, threads: as for `compare`. scheduler: address of a Dask scheduler, on whose workers errors
    are predicted; models are measured here. time_limit: seconds after which no further model is measured;
    plain int8 always is. state: a file that keeps the results, so that an interrupted call continues; calls
    with another goal can use it too. progress: is called with the name of each phase and returns the
    `progress` of `Model.profile`. told: is called with every trial. interrupted: is called where Ctrl-C ends
    the search, and the result has the trials until then; without it KeyboardInterrupt is raised.

    Raises UsageError for a goal that cannot apply and for options that do not fit, InputFileError for a state
    of another search, DataError for data that does not fit.
    """
    given = recipe or Recipe()
    if given.preprocessing is None:
        given = replace(given, preprocessing=profile.preprocessing)
    metric, labels = options["metric"], options["labels"]
    measured = None if metric is None else open_metric(metric, labels)
    loaded = model._opened
    if isinstance(loaded, UndecidedModel):
        loaded = loaded.in_profile(profile)
    make = functools.partial(
        Tuner,
        loaded,
        profile,
        goal,
        given,
        options["effort"],
        CalibrationSamples.of(calibration_data, loaded.dimensions),
        CompileOptions(isa=options["isa"], threads=choose_threads(options["threads"])),
        measured,
        progress,
    )
    judging = CalibrationSamples(data, options["select"], options["samples"], loaded.dimensions)
    # Labels are of whole samples: none is cut.
    opened, _ = judging.opened(
        real_types(loaded.inputs),
        given,
        data_labels(measured, labels),
        cuts=False,
        missing=missing_inputs(loaded.graph),
    )
    state = options["state"]
    with jobs_at(options["scheduler"], options["isa"]) as jobs:
        return make(jobs).run(
            opened,
            data_name(data),
            time_limit=options["time_limit"],
            path=None if state is None else Path(state),
            told=told,
            interrupted=interrupted,
        )
