"""Answer reproducibility checklists from records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ablations.files import PLAN_FILE, SEARCH_FILE
from ablations.folder import SearchFolder, TableFolder
from ablations.report.checklists import CHECKLISTS
from ablations.report.facts import facts_of_base, facts_of_results
from ablations.report.numbers import compute_numbers
from ablations.report.search import describe_trial
from ablations.report.table_numbers import TableNumbers
from ablations.search.space import Hyperparameter
from ablations.search.trials import best
from ablations.tables.changes import COLUMNS, columns
from ablations.tables.tune import Tune
from experiments.records.estimate import CONFIDENCE, Estimate
from experiments.records.progress import RunState, printable
from experiments.records.result import Measure, Result, in_words, valid_scores
from experiments.records.run import Run
from transformer import formats
from transformer.config import Config

# A subject of the checklists, and what the records say of it, in lines.
Answer = tuple[str, list[str]]
_YOURS = "yours to answer"


def checklist(folder: TableFolder | SearchFolder) -> str:
    """The checklists as Markdown, answered from the records of a table or a search."""
    if isinstance(folder, SearchFolder):
        answers = dict(_of_search(folder))
    else:
        answers = dict(_of_table(folder))
    lines = [f"# Checklists: {printable(folder.title)}"]
    for each in CHECKLISTS:
        lines += ["", f"## {each.title}", "", f"Official wording: {each.source}", ""]
        for item in each.items:
            answer = [line for subject in item.subjects for line in answers.get(subject, ())]
            lines.append(f"- **{item.number}** {item.asks}{'' if answer else f': {_YOURS}'}")
            lines += [f"    - {printable(line)}" for line in answer]
    return "\n".join(lines)


def _of_table(folder: TableFolder) -> Iterator[Answer]:
    table = compute_numbers(folder)
    plan, rows = table.plan, [row for row in table.rows if row.results]
    runs = [run for row in table.rows for run in row.runs]
    yield from _of_data([*folder.configs.values()], runs)
    yield from _of_results(table.results, table.trained)
    sizes = (f"{row.name} {formats.millions(row.results[0].parameters)} M" for row in rows)
    yield "parameters", [f"parameters: {', '.join(sizes)}"] if rows else []
    times = (f"{row.name} {formats.duration(row.means['train_seconds'].mean)}" for row in rows)
    yield "time", [f"mean training time of a run: {', '.join(times)}"] if rows else []
    changes: list[str] = []
    for row in rows:
        if row.changed:
            settings = (f"{name} {row.settings[name]}" for name in sorted(row.changed))
            changes.append(f"{row.name}: {', '.join(settings)}")
    yield "setup", [*_base(plan.base), *changes, f"all settings: {PLAN_FILE}"]
    yield "search", [*_tuning(plan.tune)]
    seeds = (
        f"{row.name} {len(row.results)} of {len(row.seeds)}" for row in table.rows if row.seeds
    )
    trained = f"trainings: {len(table.trained)}, each with its own seed within a row"
    yield "runs", [f"finished runs by row: {', '.join(seeds)}", f"{trained} ({_seeds(table)})"]
    yield "scores", [*_scores(table)]
    yield "code", [*_code(table.results), f"`{_command(table)}`"]


def _tuning(tune: Tune | None) -> Iterator[str]:
    if tune is None:
        yield "this table searched nothing: if its settings come from a search, add that search's"
        return
    factors = ", ".join(f"{factor:g}" for factor in tune.factors)
    yield (
        f"learning rate of each row, the base's included: its source's times {factors}, and one "
        f"factor more if the best is at an end; the one with the lowest perplexity on the "
        f"validation set in seed {tune.seed} is reported, with other seeds"
    )


def _base(base: Config) -> Iterator[str]:
    values = columns(base)
    yield f"base model: {', '.join(f'{title} {values[x]}' for x, title in COLUMNS.items())}"
    yield f"base: {'; '.join(f'{name} {text}' for name, text in facts_of_base(base))}"


def _seeds(table: TableNumbers) -> str:
    seeds = sorted({result.seed for result in table.results})
    return f"seeds {', '.join(map(str, seeds))}" if seeds else "none finished"


def _command(table: TableNumbers) -> str:
    seeds = sorted({seed for row in table.rows for seed in row.seeds})
    given = ",".join(map(str, seeds))
    return f"python -m ablations run {table.plan.table} --scale {table.plan.scale} --seeds {given}"


def _scores(table: TableNumbers) -> Iterator[str]:
    """The scores of each row, on the validation set beside those on the test set."""
    if not table.results:
        return
    interval = f"{CONFIDENCE:.0%} confidence intervals by Student's t over the seeds"
    yield f"means, with {interval}" if table.has_seeds else "single runs, without a spread"
    for row in table.rows:
        cells = [
            f"{measure.label} {_estimate(score, measure)}"
            for measure in table.measures
            if row.results and (score := row.scores[measure.name].ours) is not None
        ]
        if cells:
            yield f"{row.name} ({formats.counted(len(row.results), 'run')}): {', '.join(cells)}"


def _estimate(found: Estimate, measure: Measure) -> str:
    mean = formats.number(found.mean, measure.digits)
    if found.interval is None:
        return mean
    low, high = (formats.number(end, measure.digits) for end in found.interval)
    return f"{mean} ({low} to {high})"


def _of_search(folder: SearchFolder) -> Iterator[Answer]:
    search, trials = folder.plan, folder.trials()
    runs = [folder.read(trial.name) for trial in trials if trial.values]
    results = [trial.result for trial in trials if trial.result]
    yield from _of_data([search.base], runs)
    yield from _of_results(results, results)
    pruned = [trial for trial in trials if trial.state == RunState.PRUNED]
    if results:
        sizes = [result.parameters for result in results]
        low, high = formats.millions(min(sizes)), formats.millions(max(sizes))
        yield "parameters", [f"parameters: {low} M to {high} M"]
        mean = sum(result.train_seconds for result in results) / len(results)
        yield "time", [f"mean training time of a finished trial: {formats.duration(mean)}"]
    yield "setup", [*_base(search.base), f"all settings: {SEARCH_FILE}"]
    bounds = (f"{each.name}: {_range(each)}" for each in search.declared)
    method = (
        f"sampler {search.sampler} with seed {search.seed}, pruner {search.pruner}; the best trial "
        "is the one with the lowest perplexity on the validation set"
    )
    yield "search", [*bounds, method, search.describe_rungs()]
    best_trial = best(trials)
    yield "best", [f"best: {describe_trial(search, best_trial)}"] if best_trial else []
    states = Counter(str(trial.state) for trial in trials)
    counts = ", ".join(f"{count} {state}" for state, count in states.items())
    ended = f"trials: {search.trials} planned; {counts}"
    steps = sum(trial.step for trial in pruned)
    took = [f"pruned trials took {steps:,} steps, which the times do not include"] if pruned else []
    yield "runs", [ended, *took, f"all with seed {search.base.training.seed}"]
    scores: list[str] = []
    if best_trial is not None and best_trial.result is not None:
        words = in_words(valid_scores(best_trial.result))
        scores.append(f"the best trial, a single run, on the validation set: {words}")
    if folder.confirmation is not None:
        scores += _scores(compute_numbers(folder.confirmation))
    yield "scores", scores
    scale = f"--scale {search.scale} --trials {search.trials} --seed {search.seed}"
    how = f"--sampler {search.sampler} --pruner {search.pruner}"
    yield (
        "code",
        [*_code(results), f"`python -m ablations search {search.space} {scale} {how}`"],
    )


def _range(parameter: Hyperparameter) -> str:
    """The bounds of a hyperparameter, in the units of the space."""
    if parameter.kind == "choice":
        return f"one of {', '.join(map(str, parameter.choices))}"
    kind = "log-uniform" if parameter.log else "uniform"
    return f"{parameter.low:g} to {parameter.high:g}, {kind}"


def _of_data(configs: Sequence[Config], runs: Sequence[Run]) -> Iterator[Answer]:
    """What is known of each corpus."""
    corpora = {config.data.corpus.name: config.data for config in configs}
    licence: list[str] = []
    languages: list[str] = []
    excluded: list[str] = []
    for name, data in corpora.items():
        corpus = data.corpus
        licence.append(f"{name}: {corpus.licence}")
        languages.append(f"{name}: {corpus.source_language} to {corpus.target_language}")
        rules = [f"training pairs with over {data.max_length} word-pieces on a side"]
        if data.max_length_ratio is not None:
            rules.append(f"pairs with one side over {data.max_length_ratio:g} times as long")
        if data.drop_duplicates:
            rules.append("all but the first of equal pairs")
        excluded.append(
            f"{name}: {', '.join(rules)}; `python -m experiments prepare` prints how many"
        )
    yield "licence", licence
    yield "languages", languages
    yield "excluded", excluded
    yield from _of_recorded_data(runs)


def _of_recorded_data(runs: Sequence[Run]) -> Iterator[Answer]:
    """The splits and the sources of the text, for all data that runs recorded."""
    splits: dict[str, None] = {}
    sources: dict[str, None] = {}
    for run in runs:
        if run.data is None or run.experiment is None:
            continue
        name = run.experiment.config.data.corpus.name
        sizes = {split: run.data.pairs(split) for split in ("train", "valid", "test")}
        counts = (f"{split} {count:,}" for split, count in sizes.items() if count is not None)
        splits[f"{name}: pairs: {', '.join(counts)}"] = None
        for place, sha256 in run.data.sources:
            sources[f"{place} (sha256 {sha256})"] = None
    yield "splits", [*splits]
    yield "sources", [*sources]


def _of_results(results: Sequence[Result], trained: Sequence[Result]) -> Iterator[Answer]:
    """The infrastructure, compute, packages and measures of finished runs."""
    known = dict(facts_of_results(results, trained))
    if not known:
        return
    seconds = sum(result.train_seconds * result.devices for result in trained)
    yield "infrastructure", [f"{name}: {known[name]}" for name in ("device", "precision")]
    yield (
        "compute",
        [
            f"training: {seconds / 3_600:,.1f} device hours, {known['total arithmetic']}, of "
            f"{formats.counted(len(trained), 'finished training')}, without failed attempts and "
            "scoring"
        ],
    )
    yield "packages", [f"versions: {known['versions']}"] if "versions" in known else []
    scores = ("BLEU", "BLEU tokenised", "chrF")
    signatures = [f"{name}: {known[name]}" for name in scores if name in known]
    if results[0].parses:
        signatures.append("F1: of labelled brackets, counted as evalb does")
    perplexity = "perplexity: exp of the cross-entropy per word-piece, ends of sentences included"
    yield "measures", [*signatures, perplexity]


def _code(results: Sequence[Result]) -> list[str]:
    commits = sorted({result.commit for result in results})
    return [f"commit: {', '.join(commits)}"] if commits else []
