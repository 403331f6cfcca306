"""Try a proposal."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from ablations.files import PLAN_FILE, check_free
from ablations.proposals.decide import Spread, Verdict, compare, decide, smallest_gain
from ablations.proposals.desk import Desk, classes_of
from ablations.proposals.ledger import Adopted, Tried
from ablations.proposals.read import CLASSES, keep_sources, read_proposal
from ablations.proposals.scores import Scores
from ablations.runs.attempts import clear_failures
from ablations.runs.lock import WHOLE, lock_runs
from ablations.runs.options import Options
from ablations.tables.plan import PlannedRow
from ablations.tables.table import Cell, Row
from experiments.records.ownership import identity
from transformer.config import OPTIONS_OF, Config, override, text_settings, to_dict
from transformer.errors import InputError
from transformer.files import remove, to_json

_FIRST = 2  # seeds after which a worse proposal ends early
_MINUTES, _MINUTES_AT = 30.0, {"quick": 3.0}  # of training a proposal, by default
_LATER = 20  # proposals after which the answer also tells the smallest gain


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The answer of ``try``: a ``line`` of the ledger in ``directory``, ``repeated`` if it was
    there before, when the base may have been another than the ``current_base``. The smallest gains
    are those that the next proposal, and one after 20 more, would show with a power of 80 %, as
    logarithms of perplexity.
    """

    line: Tried | Adopted
    directory: Path
    repeated: bool
    current_base: str
    smallest_gain: float
    smallest_gain_after_20: float

    @property
    def code(self) -> int:
        """The exit code: 1 without a verdict."""
        return int(isinstance(self.line, Tried) and self.line.verdict == Verdict.NONE)

    def to_json(self) -> str:
        """What ``try --json`` prints: the fields of the line, then the other fields."""
        gains = {
            "smallest_gain": self.smallest_gain,
            "smallest_gain_after_20": self.smallest_gain_after_20,
        }
        about = {
            "directory": str(self.directory),
            "repeated": self.repeated,
            "current_base": self.current_base,
            **gains,
        }
        return to_json({**to_dict(self.line), **about}, indent=None)


def try_proposal(
    what: str, scale: str, root: Path, minutes: float | None, options: Options
) -> Answer:
    """Train a proposal and decide whether it is better than the base.

    Args:
        what: the proposal, as for :func:`ablations.proposals.read.read_proposal`
        root: the directory of the proposals and their base
        minutes: of training, after which it ends without a verdict; None for the scale's default

    Raises:
        InputError: if it cannot be a proposal.
        ablations.proposals.desk.StoppedError: after a signal.
    """
    proposal = read_proposal(what)
    check_free(root, PLAN_FILE)
    desk = Desk(root, scale, options)
    _check(desk, desk.plan_row(proposal))  # before a directory is made
    with lock_runs(root, WHOLE):
        desk = Desk(root, scale, options)
        planned = desk.plan_row(proposal)
        known = desk.find(planned)
        before = desk.ledger.tried.get(known.name) if known else None
        desk.make_base()  # whose spread every answer needs
        if before is not None and before.verdict != Verdict.NONE:
            return answer_of(desk, before, repeated=True)
        if known is None:
            known = _add(desk, proposal)
        if before is not None:
            for seed in known.seeds:
                clear_failures(root / str(Cell(known.name, seed)))
        limit = _MINUTES_AT.get(scale, _MINUTES) if minutes is None else minutes
        line = _test(desk, known, time.monotonic() + 60 * limit)
        desk.ledger.append(line)
        return answer_of(desk, line)


def _add(desk: Desk, proposal: Row) -> PlannedRow:
    """Copy the classes of a new proposal and give it a row."""
    from transformer.training.method import make_module

    number = len(desk.plan.rows)
    kept = keep_sources(desk.root, number, proposal, desk.plan.row(desk.base).changes)
    planned = desk.plan_row(replace(kept, name=desk.free_name(proposal.name)))
    try:
        make_module(planned.configure(desk.plan.base))
    except InputError as error:
        remove(desk.root / CLASSES / str(number))
        raise InputError(f"{error}; of a proposal's files, only Python files are copied") from error
    desk.add(replace(planned, seeds=planned.seeds[:_FIRST]))
    return planned


def _check(desk: Desk, planned: PlannedRow) -> None:
    """Refuse a proposal that cannot be compared with the base, or whose model cannot be made."""
    from transformer.training.method import make_module

    if desk.find(planned) is not None:
        return
    fixed = [name for name in ("precision", "threads") if name in planned.changes]
    if fixed:
        raise InputError(
            f"{planned.name} sets {fixed[0]}, but proposals have the base's: remove it"
        )
    config, base = planned.configure(desk.plan.base), desk.plan.configs[desk.base]
    if text_settings(config) != text_settings(base):
        raise InputError(
            f"{planned.name} changes the text or its vocabulary, but perplexities can only be "
            "compared on the same word-pieces: try another change"
        )
    if _trained(config) == _trained(base):
        raise InputError(
            f"{planned.name} changes nothing in the training: its settings are the base's"
        )
    make_module(config)


def _trained(config: Config) -> Config:
    """The settings that perplexity depends on, the same for all seeds."""
    same = {"checkpoint_every_steps": 1, "validate_every_steps": 1, "log_every_steps": 1}
    found = identity(override(config, seed=0, also_average=None, **same))
    return replace(found, decoding=type(found.decoding)())


def _test(desk: Desk, planned: PlannedRow, deadline: float) -> Tried:
    """Train the seeds of a proposal, a few at first, until there is a verdict."""
    more = (seed for seed in desk.base_seeds if seed not in planned.seeds)
    seeds = (*planned.seeds, *more)[: desk.seeds]
    base = desk.scores(desk.base, desk.base_seeds)
    earlier, look = desk.ledger.spread(without=planned.name), desk.ledger.look(planned.name)
    is_tested, found, verdict = False, Scores({}), None
    for batch in dict.fromkeys((seeds[:_FIRST], seeds)):  # one batch if these are the same
        row = desk.plan.row(planned.name)
        desk.add(replace(row, seeds=tuple(dict.fromkeys((*row.seeds, *batch)))))
        new = [seed for seed in batch if seed not in found.by_seed and seed not in found.lost]
        desk.train(planned.name, new, deadline=deadline)
        found = desk.scores(planned.name, batch)
        _check_data(desk, planned, found, base)
        if not found.diverged and (found.left or len(found.lost) == len(batch)):
            verdict = Verdict.NONE  # out of time, or all lost: further seeds would be lost too
            break
        verdict = decide(
            tuple(base.by_seed.values()),
            found.values,
            planned=len(seeds),
            lost=len(found.lost),
            has_diverged=bool(found.diverged),
            earlier=earlier,
            look=look,
        )
        is_tested |= bool(found.values) or bool(found.diverged)
        if verdict is not None:
            break
    assert verdict is not None
    line = _line(desk, replace(planned, seeds=seeds), found, base, verdict)
    if not is_tested:
        return line
    return _with_test(line, base, found, earlier, look)


def _check_data(desk: Desk, planned: PlannedRow, found: Scores, base: Scores) -> None:
    data = {each for each in found.data | base.data if each}
    if len(data) > 1:
        raise InputError(
            f"{planned.name} was trained on other data ({', '.join(sorted(found.data))}) than the "
            f"base ({', '.join(sorted(base.data))}): remove {desk.root / desk.base} to train the "
            "base here too"
        )


def _line(desk: Desk, planned: PlannedRow, found: Scores, base: Scores, verdict: Verdict) -> Tried:
    """The line of a proposal, without the numbers of a test."""
    of_base = desk.plan.row(desk.base).changes
    settings = {
        name: value
        for name, value in planned.changes.items()
        if name not in OPTIONS_OF and of_base.get(name) != value
    }
    perplexities = {str(seed): math.exp(score) for seed, score in found.by_seed.items()}
    differences = {
        str(seed): score - base.by_seed[seed]
        for seed, score in found.by_seed.items()
        if seed in base.by_seed
    }
    reason = found.reasons[0] if found.reasons else ""
    if verdict == Verdict.NONE and found.left:
        why = f" ({reason})" if reason else ""
        reason = f"not all seeds finished in time{why}: the same command continues"
    return Tried(
        number=desk.number(planned.name),
        name=planned.name,
        classes=classes_of(planned),
        settings=settings,
        seeds=planned.seeds[: desk.seeds],
        base=desk.base,
        base_seeds=desk.base_seeds,
        perplexities={**perplexities, **{str(seed): None for seed in found.diverged}},
        differences=differences,
        verdict=verdict,
        reason=reason,
        seconds=found.seconds,
        when=now(),
    )


def _with_test(line: Tried, base: Scores, found: Scores, earlier: Spread, look: int) -> Tried:
    """The line with the numbers of the test; a diverged run has no interval and no p-value."""
    line = replace(line, look=look, scores=found.values)
    if not found.values:
        return line
    test = compare(base.values, found.values, earlier=earlier, look=look)
    line = replace(line, level=test.level, difference=test.difference)
    if found.diverged:
        return line
    return replace(line, interval=test.interval, p=test.p)


def now() -> str:
    """The current time, as in the lines of the ledger."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def answer_of(desk: Desk, line: Tried | Adopted, *, repeated: bool = False) -> Answer:
    """The answer with this line, and with the gains that the next proposals would show."""
    ledger = desk.ledger
    name, seeds = ledger.base(desk.base_seeds)
    base = desk.scores(name, seeds).values
    gains = [
        smallest_gain(base, desk.seeds, earlier=ledger.spread(), look=ledger.next_look, more=more)
        for more in (0, _LATER)
    ]
    return Answer(
        line=line,
        directory=desk.root,
        repeated=repeated,
        current_base=name,
        smallest_gain=gains[0],
        smallest_gain_after_20=gains[1],
    )
