"""The skips that are accepted, and how many of each: another one, or one more, fails the session.

A test that is skipped tests nothing; this list keeps that from happening unseen.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from tests.zoo import ZOO


@dataclass(frozen=True)
class Accepted:
    """A reason to skip, as a regular expression that fits all of it, and how many tests may have it."""

    reason: str
    most: int


ACCEPTED = (
    Accepted(r"needs /.*", 0 if ZOO.exists() else 2000),  # models and data that are not in the repository
    # Optional rivals, and what they can do on this processor.
    Accepted(r"could not import 'openvino': .*", 16),
    Accepted(r"could not import 'llama_cpp': .*", 1),
    Accepted(r"nothing holds OpenVINO to .*", 6),
    Accepted(r"the processor has no bfloat16", 1),
    Accepted(r"needs NNCF: .*", 1),
    # Libraries that export models, gigabytes of them.
    Accepted(r"the extra `exports` is not installed: \w+", 1),
    # Libraries that show results and run notebooks.
    Accepted(r"could not import '(matplotlib|pandas)': .*", 12),
    # Instruction sets that this processor lacks, or has.
    Accepted(r"the host has no two ISAs with fused multiply-add", 40),
    Accepted(r"the host has no fused multiply-add", 60),
    Accepted(r"the host has AMX", 2),
    Accepted(r"the host has no AVX2", 2),
    Accepted(r"the host has no avx\w+", 10),
    Accepted(r"the host cannot emulate AMX", 120),
    Accepted(r"the host cannot run it", 16),
    Accepted(r"no C compiler is installed", 40),
    Accepted(r"the C compiler makes code for \w+, not for this processor", 40),
    Accepted(r"no C\+\+ compiler is installed", 1),
    Accepted(r"no Rust compiler is installed", 1),
    Accepted(r"CMake is not installed", 1),
    Accepted(r"Node\.js is not installed", 1),
    Accepted(r"QEMU before 10 has a fault of its own in what this runs", 1),
    Accepted(r"QEMU that is linked statically counts no instructions", 12),
    Accepted(r"no Chromium with chromedriver is installed", 15),
    Accepted(r"no emulator of the processor is installed", 300),
    # What a model does not have.
    Accepted(r"the file of .* fixes the batch", 20),
    Accepted(r".* has no Conv or Gemm with an int8 result", 3),
    Accepted(r"one sample, or the file fixes the batch", 24),
    # Work that is left out to save time.
    Accepted(r"large models run with a batch on two ISAs only, to save time", 40),
    Accepted(r"half of the choices, to save time", 40),
    # Installed versions and systems that a test does not fit.
    Accepted(r"the list was made with onnx .*", 3),
    Accepted(r"finds a file's name in /proc", 1),
    Accepted(r"reads peak memory from /proc", 5),
)


def violations(reasons: Iterable[str], accepted: Iterable[Accepted] = ACCEPTED) -> list[str]:
    """Sentences on the skips that the list does not accept; `reasons` has one element for each skip."""
    counts: Counter[Accepted | str] = Counter()
    for reason in reasons:
        fitting = next((entry for entry in accepted if re.fullmatch(entry.reason, reason)), None)
        counts[reason if fitting is None else fitting] += 1
    found = []
    for what, count in counts.items():
        if isinstance(what, str):
            found.append(f"{count} skipped for a reason that tests/skips.py does not accept: {what}")
        elif count > what.most:
            found.append(f"{count} skipped, tests/skips.py accepts {what.most}: {what.reason}")
    return found
