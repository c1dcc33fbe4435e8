"""From answered rows to the numbers: problem by problem, then means over the problems with their uncertainty."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dapo.evaluation.estimators import bootstrap_intervals, majority_at_k, pass_at_k, reported_k
from dapo.evaluation.store import Answer, AnsweredRow


@dataclass(frozen=True)
class Problem:
    """One problem with all answers to it, from every row that asks it."""

    rows: tuple[int, ...]
    """Numbers of its rows in the data as read."""
    question: str
    reference: Any
    answers: tuple[Answer, ...]
    right: tuple[bool, ...]

    @property
    def accuracy(self) -> float:
        return sum(self.right) / len(self.right)

    @property
    def mean_length(self) -> float:
        return sum(answer.length for answer in self.answers) / len(self.answers)

    @property
    def truncated(self) -> int:
        return sum(answer.truncated for answer in self.answers)

    @property
    def majority(self) -> str | None:
        """The answer that is stated most often, the first of those that tie; None when none states any."""
        votes = [answer.vote for answer in self.answers if answer.vote is not None]
        return max(dict.fromkeys(votes), key=votes.count, default=None)


@dataclass(frozen=True)
class Measure:
    """A mean over the problems, with its 95% confidence interval."""

    name: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Report:
    """What an evaluation came to."""

    problems: tuple[Problem, ...]
    measures: tuple[Measure, ...]
    fewest: int
    """Answers to the problem with the fewest."""
    most: int
    unjudged: int
    """Answers that scored 0 since the reward failed on them."""

    def value(self, name: str) -> float:
        """The measure `name`, such as `pass@4`. Raises KeyError for one that was not made."""
        return {measure.name: measure.value for measure in self.measures}[name]


def make_report(rows: Iterable[AnsweredRow], *, right_from: float, seed: int) -> Report:
    """The measures, each a mean over problems: every problem counts the same, however often it is asked.

    right_from: the least score of a right answer. seed: of the bootstrap. There is at least one row.
    """
    ordered = sorted(rows, key=lambda row: row.draw)
    problems = _problems(ordered, right_from)
    counts = [len(problem.answers) for problem in problems]
    columns = _columns(problems, min(counts), max(counts))
    values_PM = np.array(list(columns.values()), dtype=np.float64).T
    intervals = bootstrap_intervals(values_PM, seed)
    means = values_PM.mean(0)
    measures = tuple(
        Measure(name, float(mean), float(low), float(high))
        for name, mean, (low, high) in zip(columns, means, intervals, strict=True)
    )
    return Report(tuple(problems), measures, min(counts), max(counts), sum(row.unjudged for row in ordered))


def _problems(rows: Sequence[AnsweredRow], right_from: float) -> list[Problem]:
    """Rows with the same prompt and reference answer ask one problem; treating them as several would make the result
    look surer than it is."""
    same: dict[str, list[AnsweredRow]] = {}
    for row in rows:
        same.setdefault(json.dumps([row.prompt, row.reference], sort_keys=True, default=str), []).append(row)
    problems = []
    for group in same.values():
        answers = tuple(answer for row in group for answer in row.answers)
        right = tuple(answer.score >= right_from for answer in answers)
        problems.append(Problem(tuple(row.row for row in group), group[0].question, group[0].reference, answers, right))
    return problems


def _columns(problems: Sequence[Problem], fewest: int, most: int) -> dict[str, list[float]]:
    """Measure -> its value for each problem."""
    average = f"avg@{fewest}" if fewest == most else f"avg@{fewest}-{most}"
    columns = {average: [problem.accuracy for problem in problems]}
    for k in reported_k(fewest):
        columns[f"pass@{k}"] = [pass_at_k(len(problem.right), sum(problem.right), k) for problem in problems]
    if any(answer.vote is not None for problem in problems for answer in problem.answers):
        for k in reported_k(fewest)[1:]:  # the majority of one answer is that answer
            columns[f"maj@{k}"] = [
                majority_at_k([answer.vote for answer in problem.answers], problem.right, k) for problem in problems
            ]
    columns["reward"] = [_mean([answer.reward for answer in problem.answers]) for problem in problems]
    columns["length"] = [problem.mean_length for problem in problems]
    columns["truncated"] = [problem.truncated / len(problem.answers) for problem in problems]
    return columns


def report_json(report: Report) -> dict[str, Any]:
    """The report for `results.json`."""
    return {
        "metrics": {
            measure.name: {"value": measure.value, "low": measure.low, "high": measure.high}
            for measure in report.measures
        },
        "problems": len(report.problems),
        "answers_per_problem": {"fewest": report.fewest, "most": report.most},
        "unjudged_answers": report.unjudged,
        "per_problem": [
            {
                "rows": list(problem.rows),
                "question": problem.question,
                "reference": problem.reference,
                "answers": len(problem.answers),
                "right": sum(problem.right),
                "majority": problem.majority,
                "mean_length": problem.mean_length,
                "truncated": problem.truncated,
            }
            for problem in report.problems
        ],
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
