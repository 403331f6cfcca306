"""The model card of an export: a README in Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from experiments.evaluate.trained import TrainedModel
from experiments.records.data import recorded_data
from experiments.records.estimate import CONFIDENCE, Estimate, estimate
from experiments.records.experiment import EXPERIMENT_FILE, Experiment, load_experiment
from experiments.records.ownership import changed_settings
from experiments.records.progress import printable
from experiments.records.result import MEASURES, Averaged, Measure, Result, load_result
from transformer import formats
from transformer.config import override
from transformer.data.languages import language_of
from transformer.errors import InputError
from transformer.files import to_json

CARD_FILE = "README.md"
_SEED = re.compile(r"seed-\d+")


def model_card(trained: TrainedModel, directory: Path) -> str:
    """The card of the model of the run in ``directory``, with what its records say of it."""
    experiment, result = trained.experiment, load_result(directory)
    corpus = experiment.config.data.corpus
    codes = [language_of(x).code for x in (corpus.source_language, corpus.target_language)]
    head = {"language": codes, "library_name": "transformers", "pipeline_tag": "translation"}
    parts = [
        [
            "---",
            *(f"{name}: {to_json(value, indent=None).strip()}" for name, value in head.items()),
            "---",
        ],
        [f"# {_plain(experiment.name)}: {' to '.join(codes)}"],
        [
            "The encoder-decoder of [Attention Is All You Need](https://arxiv.org/abs/1706.03762)"
            f": {_plain(experiment.description)}."
        ],
        list(_use(trained)),
        ["## Scores", "", *_scores(trained, directory, result)],
        ["## Training", "", *_training(trained, result)],
        ["## Data and licence", "", *_data(experiment, directory)],
    ]
    return "\n\n".join("\n".join(lines) for lines in parts) + "\n"


def _plain(text: str) -> str:
    return printable(text).replace("|", "\\|").replace("<", "&lt;")


def _use(trained: TrainedModel) -> Iterator[str]:
    decoding = trained.experiment.config.decoding
    yield from (
        "```python",
        "from transformers import AutoModelForSeq2SeqLM, AutoTokenizer",
        "",
        'tokenizer = AutoTokenizer.from_pretrained("FOLDER")',
        'model = AutoModelForSeq2SeqLM.from_pretrained("FOLDER")',
        'batch = tokenizer(["A sentence."], return_tensors="pt", padding=True)',
        "print(tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True))",
        "```",
        "",
    )
    alpha = decoding.length_penalty
    if decoding.beam_size > 1 and alpha:
        yield (
            f"`generate` searches with beam {decoding.beam_size}. It divides log-probabilities by "
            f"length^{alpha:g}; the scores below were computed with ((5 + length) / 6)^{alpha:g}, "
            "so that some translations differ."
        )
    if trained.model.config.positions == "learned":
        yield (
            "The positions are learned: `save_pretrained` of transformers leaves them out, so copy "
            "this folder instead."
        )


def _scores(trained: TrainedModel, directory: Path, result: Result | None) -> Iterator[str]:
    """The scores of these weights, and of the seeds of their row if it has several."""
    scores = _scores_of(trained, result)
    if result is None or scores is None:
        yield "These weights have not been scored."
        return
    of_row = (_scores_of(trained, each) for each in _results_of_row(trained.experiment, directory))
    seeds = [each for each in of_row if each is not None]
    if len(seeds) > 1:
        spread = f"mean of {len(seeds)} seeds, {CONFIDENCE:.0%} confidence interval"
        yield from (f"| measure | this model | {spread} |", "| --- | ---: | ---: |")
    else:
        yield from ("| measure | this model |", "| --- | ---: |")
    for measure in MEASURES.values():
        score = getattr(scores, measure.name, None)
        if score is None:
            continue
        title = measure.title if measure.is_of_test else f"{measure.title} of the validation set"
        cells = [title, formats.number(score, measure.digits)]
        if len(seeds) > 1:
            found = [getattr(each, measure.name, None) for each in seeds]
            known = [value for value in found if value is not None]
            cells.append(_with_interval(estimate(known, measure.scale), measure))
        yield f"| {' | '.join(cells)} |"
    yield ""
    decoding = trained.experiment.config.decoding
    yield (
        f"Beam {decoding.beam_size}, length penalty {decoding.length_penalty:g}, mean of "
        f"{trained.averaged} checkpoint(s)."
    )
    if result.bleu_signature:
        yield f"BLEU: `{printable(result.bleu_signature)}`"


def _scores_of(trained: TrainedModel, result: Result | None) -> Result | Averaged | None:
    """The scores of the same number of averaged checkpoints as these weights; None if unknown."""
    if result is None or result.diverged_at is not None:
        return None
    if trained.averaged == result.averaged_checkpoints:
        return result
    mean = result.averaged
    return mean if mean is not None and mean.checkpoints == trained.averaged else None


def _with_interval(found: Estimate | None, measure: Measure) -> str:
    if found is None:
        return formats.MISSING
    mean = formats.number(found.mean, measure.digits)
    if found.interval is None:
        return mean
    low, high = (formats.number(end, measure.digits) for end in found.interval)
    return f"{mean} ({low} to {high})"


def _results_of_row(experiment: Experiment, directory: Path) -> list[Result]:
    """The results of the seeds of a table's row that have the settings of this one."""
    place = directory.resolve()
    if not _SEED.fullmatch(place.name):
        return []
    found: list[Result] = []
    for path in sorted(place.parent.iterdir()):
        if not _SEED.fullmatch(path.name):
            continue
        try:
            result, other = load_result(path), load_experiment(path).config
        except InputError:  # not begun, or damaged, which is named where that run is used
            continue
        same = override(experiment.config, seed=other.training.seed)
        if result is not None and result.diverged_at is None and not changed_settings(other, same):
            found.append(result)
    return found


def _training(trained: TrainedModel, result: Result | None) -> Iterator[str]:
    experiment = trained.experiment
    labels, seed = experiment.labels, experiment.config.training.seed
    for kind in ("table", "search", "scale", "row", "trial"):
        if kind in labels:
            yield f"- {kind}: {_plain(str(labels[kind]))}"
    yield f"- seed: {seed}"
    if result is not None:
        versions = ", ".join(f"{name} {x}" for name, x in sorted(result.versions.items()))
        yield f"- parameters: {result.parameters:,}"
        yield (
            f"- {result.steps:,} steps, {result.target_tokens:,} target tokens, "
            f"{formats.duration(result.train_seconds)}"
        )
        yield f"- {result.devices} x {_plain(result.device)}, {result.precision}"
        yield f"- commit: {_plain(result.commit)}; {_plain(versions)}"
    yield f"- all settings: `{EXPERIMENT_FILE}`"
    yield f"- command: `python -m experiments train {EXPERIMENT_FILE}`"
    if {"table", "scale", "row"} <= labels.keys():
        yield (
            f"- or, with its table: `python -m ablations run {labels['table']} "
            f"--scale {labels['scale']} --rows {labels['row']} --seeds {seed}`"
        )


def _data(experiment: Experiment, directory: Path) -> Iterator[str]:
    corpus, recorded = experiment.config.data.corpus, recorded_data(directory)
    yield f"Corpus {_plain(corpus.name)}. Its licence: {_plain(corpus.licence)}."
    if recorded is not None and recorded.sources:
        yield from ("", "| text | sha256 |", "| --- | --- |")
        for name, sha256 in recorded.sources:
            yield f"| {_plain(Path(name).name)} | `{sha256}` |"
