"""What a benchmark run does, how large it is, and about how long that takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias, get_args

from pydantic import Field, field_validator, model_validator

from tts_orch.bench.workloads import PUBLIC_WORKLOADS, RANDOM_TEXT
from tts_orch.config import DraftingConfig, Settings

__all__ = ["ALTERNATING", "PARTS", "BenchPlan", "Part", "TimingCell", "quick", "seconds_by_part", "timing_cells"]

Part: TypeAlias = Literal["record", "replay", "ablation", "overlap", "coupling", "alternation", "real", "timing"]
PARTS: Final[tuple[Part, ...]] = get_args(Part)

ALTERNATING: Final = "alternating"
"""The workload of many problems that take turns: the first one's."""

_PLAIN_RATE: Final = {1: 30.0, 4: 100.0, 8: 150.0, 16: 200.0}  # tokens/s by batch, two cores of a server, for estimates
_REAL_RATE: Final = 25.0  # tokens/s with 80 nodes a trajectory
_REPLAY_RATE: Final = 15000.0  # tokens/s over both cores


_Size: TypeAlias = Annotated[int, Field(ge=1)]


@dataclass(frozen=True, slots=True)
class TimingCell:
    """One comparison of speeds.

    Attributes:
        workload: name.
        batch: trajectories that decode at a time.
        trajectories: timed ones of each problem.
        warm: trajectories of each problem decoded before the clock starts, so that statistics are there.
        temperature: of the sampling law.
    """

    workload: str
    batch: int
    trajectories: int
    warm: int = 0
    temperature: float = 0.7

    @property
    def label(self) -> str:
        """What tables and plots call it."""
        warm = f", after {self.warm} others" if self.warm else ""
        return f"{self.workload}, batch {self.batch}{warm}"


_HOT: Final = 1.5  # temperature at which random text goes on as random


class BenchPlan(Settings):
    """Settings of `tts-orch bench drafting`."""

    out: Path
    """Folder for recordings, results, tables and plots; what is there already is used."""
    data: Path | None = None
    """Folder of problem files that workloads are looked for in."""
    target: str = "smollm2"
    """Target model, as for `tts-orch run`."""
    workloads: tuple[str, ...] = Field(PUBLIC_WORKLOADS, min_length=1)
    """Problem files: paths, or names in the data folder."""
    methods: tuple[str, ...] = ()
    """Methods to compare, by name; all if not given."""
    drafters: dict[str, Path] = Field(default_factory=dict)
    """Trained drafters to compare as well, folders by name: each alone and all merged, in the parts `replay`, at the largest
    node count, and `real`."""
    problems_per_workload: int = Field(5, ge=1)
    """Problems recorded of each workload."""
    trajectories: int = Field(16, ge=1)
    """Trajectories recorded of each problem."""
    max_new_tokens: int = Field(128, ge=2)
    """Length limit of recorded trajectories."""
    temperatures: tuple[Annotated[float, Field(ge=0)], ...] = (0.0, 0.7)
    """Sampling temperatures, one of them above 0; what is done at one only is done at the highest."""
    nodes: tuple[_Size, ...] = Field((4, 8, 16, 32, 80), min_length=1)
    """Node counts of replayed trees; methods are compared at the largest."""
    lockstep: tuple[_Size, ...] = (1, 4, 8)
    """How many trajectories of a problem advance together in replays."""
    real_workloads: tuple[str, ...] = ()
    """Workloads of real runs of what learns from rejected nodes; the first one if not given."""
    real_problems: int = Field(1, ge=1)
    """Problems of each real run."""
    real_tokens: int = Field(48, ge=2)
    """Length limit of trajectories in real runs."""
    timed_workloads: tuple[str, ...] = ()
    """Workloads of timing cells, the first one at every batch size; `random_text` has no repetition at all. If not given: the
    first workload, the last two, and random text."""
    pairs: int = Field(10, ge=1)
    """Problems of each timing cell: interleaved pairs of drafted and plain decoding."""
    timing_tokens: int = Field(32, ge=2)
    """Length limit of timed trajectories: spread evenly from half to one and a half of it."""
    alternating_problems: int = Field(50, ge=2)
    """Problems that alternate in the test that tau does not decay."""
    alternating_trajectories: int = Field(2, ge=1)
    """Trajectories of each of these problems."""
    alternating_tokens: int = Field(32, ge=2)
    """Length limit of these trajectories."""
    workers: int | None = Field(None, ge=1)
    """Processes that replay; as many as cores if not given."""
    threads: int | None = Field(None, ge=1)
    """CPU threads of the target; all cores if not given."""
    seed: int = Field(0, ge=0)
    """Fixes every token."""

    @model_validator(mode="after")
    def _fits_together(self) -> BenchPlan:
        if self.highest_temperature == 0:
            raise ValueError(
                "temperatures: one of them must be above 0; greedy trajectories of a problem are all equal"
            )
        missing = set(self.real_workloads) - set(self.workloads)
        if missing:
            raise ValueError(f"real_workloads: {min(missing)} is not among the workloads")
        if self.real_problems > self.problems_per_workload or self.real_tokens > self.max_new_tokens:
            raise ValueError("real_problems, real_tokens: at most as many as are recorded, to compare with")
        return self

    @field_validator("drafters")
    @classmethod
    def _can_draft(cls, drafters: dict[str, Path]) -> dict[str, Path]:
        return DraftingConfig(drafter="neural", drafters=drafters).drafters if drafters else {}

    @property
    def real(self) -> tuple[str, ...]:
        """Workloads of real runs."""
        return self.real_workloads or self.workloads[:1]

    @property
    def timed(self) -> tuple[str, ...]:
        """Workloads of timing cells."""
        return self.timed_workloads or tuple(dict.fromkeys((self.workloads[0], *self.workloads[-2:], RANDOM_TEXT)))

    @property
    def compared_nodes(self) -> int:
        """Node count at which methods are compared."""
        return max(self.nodes)

    @property
    def highest_temperature(self) -> float:
        """The temperature of what is done at one temperature only."""
        return max(self.temperatures, default=0.0)


def quick(plan: BenchPlan) -> BenchPlan:
    """Return the same plan made so small that it only shows that everything works."""
    small = {"problems_per_workload": 1, "trajectories": 2, "max_new_tokens": 12, "nodes": (4, 16), "lockstep": (1, 2)}
    smaller = {"real_problems": 1, "real_tokens": 8, "pairs": 2, "timing_tokens": 8, "alternating_problems": 3}
    return plan.model_copy(update={**small, **smaller})


def timing_cells(plan: BenchPlan) -> tuple[TimingCell, ...]:
    """Return every batch size for the first workload, cold and warm at batch 1, and two for random text."""
    temperature = plan.highest_temperature
    cells = []
    for place, workload in enumerate(plan.timed):
        if workload == RANDOM_TEXT:
            cells += [TimingCell(workload, 1, 2, temperature=_HOT), TimingCell(workload, 8, 16, temperature=_HOT)]
        elif place == 0:
            cells += [TimingCell(workload, 1, 2, 0, temperature), TimingCell(workload, 1, 8, 8, temperature)]
            cells += [TimingCell(workload, batch, 2 * batch, 0, temperature) for batch in (4, 8, 16)]
        else:
            cells.append(TimingCell(workload, 8, 16, 0, temperature))
    return tuple(cells)


def seconds_by_part(plan: BenchPlan, n_methods: int, n_ablations: int) -> dict[Part, float]:
    """Return about how long each part takes on two CPU cores with a model of 135 million weights; no output ends early."""
    tokens = _recorded_tokens(plan)
    real = len(plan.real) * plan.real_problems * plan.trajectories * plan.real_tokens
    timed = sum(_timing_seconds(plan, cell) for cell in timing_cells(plan))
    n_cells = n_methods * (len(plan.nodes) + len(plan.lockstep) - 1)
    alternating = plan.alternating_problems * plan.alternating_trajectories * plan.alternating_tokens
    return {
        "record": tokens / _PLAIN_RATE[16] + alternating / _PLAIN_RATE[16],
        "replay": n_cells * tokens / _REPLAY_RATE,
        "ablation": n_ablations * tokens / _REPLAY_RATE,
        "overlap": tokens / 100_000,
        "coupling": tokens / 2000,
        "alternation": 8 * alternating / _REPLAY_RATE,
        "real": 12 * real / _REAL_RATE,
        "timing": timed,
    }


def _recorded_tokens(plan: BenchPlan) -> int:
    trajectories = sum(plan.trajectories if temperature > 0 else 1 for temperature in plan.temperatures)
    return len(plan.workloads) * plan.problems_per_workload * trajectories * plan.max_new_tokens


def _timing_seconds(plan: BenchPlan, cell: TimingCell) -> float:
    timed = plan.pairs * cell.trajectories * plan.timing_tokens
    warm = plan.pairs * cell.warm * plan.timing_tokens
    return (2.8 * timed + warm) / _PLAIN_RATE[cell.batch]
