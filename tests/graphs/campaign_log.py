"""The log of a campaign: one line for each finished block, so that a campaign that was ended goes on."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class CampaignLog:
    """What the blocks of one seed came to. path: None keeps it in memory alone."""

    seed: int
    path: Path | None = None
    counts: Counter[str] = field(default_factory=Counter)
    failures: dict[int, str] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)

    @staticmethod
    def opened(seed: int, path: Path | None) -> CampaignLog:
        """Read what a file has of this seed; it need not exist."""
        log = CampaignLog(seed, path)
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                entry = json.loads(line)
                if entry["seed"] == seed:
                    log._count(entry["block"], Counter(entry["counts"]), entry["failure"])
        return log

    def add(self, block: int, counts: Counter[str], failure: str | None) -> None:
        """Note a finished block; failure: the rule that it broke."""
        self._count(block, counts, failure)
        if self.path is not None:
            entry = {
                "seed": self.seed,
                "block": block,
                "counts": dict(sorted(counts.items())),
                "failure": failure,
            }
            with self.path.open("a") as file:
                file.write(json.dumps(entry) + "\n")

    def _count(self, block: int, counts: Counter[str], failure: str | None) -> None:
        self.done.add(block)
        self.counts += counts
        if failure is not None:
            self.failures[block] = failure
