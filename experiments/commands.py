"""What each command of ``python -m experiments`` does."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from transformer.errors import InputError

if TYPE_CHECKING:
    from experiments.benchmark.report import What
    from experiments.benchmark.workload import Size

# Imports of what a single command needs stand in that command: --help is to answer at once.


def list_experiments() -> int:
    """Print the experiments that can be named.

    These are the project's own and those that a search in runs/ has found; files:FOLDER and
    FILE.py stand for text and experiments of your own.
    """
    from experiments.catalog.find import EXPERIMENTS, searched

    for name, experiment in EXPERIMENTS.items():
        print(f"{name:18} {experiment.description}")
    for name, found in searched().items():
        for path, experiment in found:
            print(f"{name:18} {experiment.description} ({path})")
    print(f"{'files:FOLDER':18} train.en, train.de, valid.en, … of your own; files:FOLDER:de-en")
    print(f"{'FILE.py':18} CORPUS = Corpus(…) or EXPERIMENT = Experiment(…) of your own")
    return 0


def prepare(name: str, vocab_size: int | None, workers: int | None) -> int:
    """Fetch, clean and encode the data of an experiment.

    train does this by itself; this command is for doing it beforehand, for example on a machine
    with a network. It prints how many lines were read, kept and dropped, and why. Called again it
    continues where it was stopped, and does nothing once all is there.
    """
    from experiments.catalog.find import find_experiment
    from transformer.data.preparation.prepare import prepare as prepare_corpus

    if workers is not None and workers < 1:
        raise InputError(f"--workers is {workers}, but must be at least 1")
    corpus = prepare_corpus(find_experiment(name, vocab_size=vocab_size).config, workers=workers)
    for entry in corpus.report():
        reasons = "".join(f", {n:,} dropped: {reason}" for reason, n in entry.dropped.items())
        print(
            f"{entry.split} {entry.text}: {entry.lines:,} lines read, "
            f"{entry.kept:,} pairs kept{reasons}"
        )
    print(corpus.directory)
    return 0


def verify(name: str, vocab_size: int | None) -> int:
    """Check every byte of an experiment's data, or of a run and its data."""
    from experiments.evaluate.verify import verify_all

    verify_all(name, vocab_size)
    return 0


def train(
    name: str,
    directory: Path | None,
    seed: int | None,
    settings: Sequence[str] | None,
    devices: int | None,
    accumulate: int,
    max_steps: int | None,
    max_minutes: float | None,
    checkpoint_minutes: float | None,
    compile: bool,
    vocab_size: int | None,
) -> int:
    """Train an experiment and score it.

    Called again with the same directory it continues where it was stopped. The scores are printed
    and written to result.json in that directory.
    """
    from experiments.catalog.find import find_experiment
    from experiments.catalog.settings import with_settings
    from experiments.run.devices import is_first_rank
    from experiments.run.execute import execute
    from experiments.run.limits import Limits
    from experiments.run.results import load_result, score_lines

    experiment = find_experiment(
        name,
        seed=seed,
        vocab_size=vocab_size,
        compile=True if compile else None,
        checkpoint_every_minutes=checkpoint_minutes,
    )
    experiment = with_settings(experiment, settings or ())
    used_seed = experiment.config.training.seed
    directory = directory or Path("runs") / f"{experiment.name}-seed{used_seed}"
    outcome = execute(
        experiment,
        directory,
        devices=devices,
        accumulate=accumulate,
        limits=Limits(max_steps=max_steps, max_minutes=max_minutes),
    )
    if outcome.state != "done":
        if outcome.signal is None or is_first_rank():
            print(outcome.message, file=sys.stderr)
        return 1 if outcome.signal is None else 128 + outcome.signal
    result = load_result(directory)
    if result is not None and is_first_rank():
        print(
            f"{result.steps:,} steps in {result.train_seconds:,.0f} s "
            f"({result.tokens_per_second:,.0f} target tokens/s)"
        )
        print("\n".join([*score_lines(result), str(directory)]))
    return 0


def evaluate(
    directory: Path,
    split: str,
    source: Path | None,
    reference: Path | None,
    average: int | None,
    beam_size: int | None,
    length_penalty: float | None,
    output: Path | None,
    engine: str,
) -> int:
    """Score a run on a split of its corpus, or on a text of your own.

    Prints BLEU with its signature and the perplexity.
    """
    from experiments.evaluate.evaluate import evaluate_run

    evaluate_run(
        directory,
        split=split,
        source=source,
        reference=reference,
        average=average,
        beam_size=beam_size,
        length_penalty=length_penalty,
        output=output,
        engine=engine,
    )
    return 0


def compare(first: Path, second: Path, split: str | None, reference: Path | None) -> int:
    """Test whether two runs, or two files of translations, differ by more than chance.

    Uses sacreBLEU's paired bootstrap. Two runs are compared by the translations that they wrote;
    two files need --reference.
    """
    from experiments.evaluate.compare import compare_files, compare_runs

    if reference is None:
        print(compare_runs(first, second, split or "valid"))
    elif split is None:
        print(compare_files(first, second, reference))
    else:
        raise InputError("--split is for runs, --reference for files: give one of them")
    return 0


def translate(
    directory: Path,
    average: int | None,
    beam_size: int | None,
    length_penalty: float | None,
    engine: str,
) -> int:
    """Translate standard input to standard output, line by line.

    The input is plain UTF-8 text, a sentence on each line.
    """
    from experiments.evaluate.evaluate import translate_stream

    for line in translate_stream(
        directory,
        sys.stdin.buffer,
        average=average,
        beam_size=beam_size,
        length_penalty=length_penalty,
        engine=engine,
    ):
        sys.stdout.buffer.write(f"{line}\n".encode())
        sys.stdout.buffer.flush()
    return 0


def export(
    directory: Path,
    format: str,
    quantization: str | None,
    average: int | None,
    output: Path | None,
    check: int | None,
) -> int:
    """Write a run's model for CTranslate2, or as safetensors.

    Needs the extra 'export': pip install '.[export]'.
    """
    from experiments.export.export import export_run

    export_run(
        directory,
        format,
        quantization=quantization,
        average=average,
        output=output,
        check=check,
    )
    return 0


def benchmark(
    size: Size | None,
    device: str | None,
    what: What | None,
    turns: int | None,
    compile: bool,
    output: Path | None,
) -> int:
    """Compare training, decoding and batching with plain code of torch's own parts.

    Prints a table and writes the figures as JSON. Needs no data.
    """
    from experiments.benchmark.report import benchmark as measure

    words = [word for word in ("benchmark", size, device, what) if word]
    measure(size, device, what, turns, compile, output or Path("runs") / f"{'-'.join(words)}.json")
    return 0


def benchmark_prepare(name: str, pairs: int, output: Path | None) -> int:
    """Time the preparation of a corpus of any size.

    The corpus is the training text of an experiment, multiplied to so many pairs.
    """
    from experiments.benchmark.preparation import measure_preparation

    path = output or Path("runs") / f"benchmark-prepare-{pairs}.json"
    measure_preparation(name, pairs, path)
    return 0
