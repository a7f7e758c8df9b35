"""Writes the networks with drawn weights that other benchmarks make for themselves, to look at them.

Each is NAME.onnx, and NAME.npz with random inputs. The names are those of the nine topologies that the onnx
package carries and of two MobileNets for timing; the same files come out everywhere.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from scripts.benchmarks.frame import Benchmark, Outcome
from scripts.benchmarks.models import light_networks, timing_networks
from scripts.benchmarks.models.drawn import write_network
from scripts.benchmarks.models.evaluated import check_names

NETWORKS = {
    **dict.fromkeys(light_networks.NETWORKS, light_networks.light_network),
    **dict.fromkeys(timing_networks.NETWORKS, timing_networks.timing_network),
}


def _write(options: argparse.Namespace) -> Outcome:
    names = options.models or list(NETWORKS)
    check_names(names, list(NETWORKS))
    options.folder.mkdir(parents=True, exist_ok=True)
    written = (write_network(NETWORKS[name](name), name, options.folder) for name in names)
    return Outcome("\n".join(f"{model} {data}" for model, data in written))


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="made where it is missing")


BENCHMARK = Benchmark(__doc__, _write, add_options=_add_options)
