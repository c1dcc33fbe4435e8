"""`task:countdown?numbers=3&largest=20`: reach a target with every number once, by + - and *.

The worked solution is a search as one does it on paper: attempts that miss, then the one that hits, each written out
to its value. How many miss differs from problem to problem by chance, so lengths have a long tail.

    8 12 3 = 20                 the prompt
    (12+8)-3=20-3=17            an attempt that misses
    (8*3)-12=24-12=12           another
    ...
"""

from __future__ import annotations

import operator
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dapo.data.distinct_problems import distinct_problems
from dapo.data.rows import Row
from dapo.data.task_query import TaskQuery

_OPERATIONS: dict[str, Callable[[int, int], int]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_MOST_VALUE = 99
"""Neither a target nor a value on the way is larger, so that a small model can learn the arithmetic."""
_GO_ON = 0.75
"""Chance that a worked solution has another attempt that misses: 3 on average."""
_INNERMOST = re.compile(r"\((\d+)([-+*])(\d+)\)")


@dataclass(frozen=True)
class Countdown:
    """One problem."""

    numbers: tuple[int, ...]
    """In rising order."""
    target: int

    @property
    def text(self) -> str:
        """`3 8 12 = 20`, which is also the row's answer: what the reward `countdown` needs to know."""
        return f"{' '.join(map(str, self.numbers))} = {self.target}"


def countdown_rows(query: TaskQuery) -> list[Row]:
    """Distinct problems with 3 or 4 `numbers` (3) from 1 to `largest` (20). Each can be solved.

    Columns beside prompt and answer: solution, numbers, target.
    """
    query.only("numbers", "largest")
    count = query.integer("numbers", 3, least=3, most=4)
    largest = query.integer("largest", 20, least=2, most=_MOST_VALUE)
    problems = distinct_problems(query, lambda generator: _draw(generator, count, largest), lambda each: each.text)
    return [_row(query, index, problem) for index, problem in enumerate(problems)]


def _draw(generator: random.Random, count: int, largest: int) -> Countdown | None:
    """Numbers at random, then one of the values that they can give; None when they give none."""
    numbers = tuple(sorted(generator.randint(1, largest) for _ in range(count)))
    values = sorted({value for _, value in _expressions([(str(number), number) for number in numbers])})
    return Countdown(numbers, generator.choice(values)) if values else None


def _row(query: TaskQuery, index: int, problem: Countdown) -> Row:
    prompt = problem.text + "\n"
    columns = {
        "prompt": prompt,
        "answer": problem.text,
        "solution": _worked(problem),
        "numbers": list(problem.numbers),
        "target": problem.target,
    }
    return Row(index, f"{query.task} row {index + 1}", prompt, problem.text, columns)


def _worked(problem: Countdown) -> str:
    """Attempts that miss, each once, and one that hits; always the same ones for a problem."""
    values = dict(_expressions([(str(number), number) for number in problem.numbers]))
    generator = random.Random(problem.text)
    hits = [text for text, value in values.items() if value == problem.target]
    misses = [text for text, value in values.items() if value != problem.target]
    generator.shuffle(misses)
    tried = 0
    while tried < len(misses) and generator.random() < _GO_ON:
        tried += 1
    return "\n".join(_written_out(text) for text in [*misses[:tried], generator.choice(hits)])


def _expressions(parts: Sequence[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """Every way to join all parts (text, value) into one, the larger side first, with values from 1 to 99 throughout.

    Each is bracketed but the whole: `(8*3)-12`.
    """
    if len(parts) == 1:
        text, value = parts[0]
        yield text[1:-1], value
        return
    for second in range(len(parts)):
        for first in range(second):
            rest = [part for place, part in enumerate(parts) if place not in (first, second)]
            (small, low), (big, high) = sorted((parts[first], parts[second]), key=lambda part: part[1])
            for sign, apply in _OPERATIONS.items():
                if 1 <= (value := apply(high, low)) <= _MOST_VALUE:
                    yield from _expressions([*rest, (f"({big}{sign}{small})", value)])


def _written_out(expression: str) -> str:
    """`(8*3)-12` with its value, one operation at a time: `(8*3)-12=24-12=12`."""
    text = f"({expression})"
    steps = [expression]
    while match := _INNERMOST.search(text):
        value = _OPERATIONS[match[2]](int(match[1]), int(match[3]))
        text = f"{text[: match.start()]}{value}{text[match.end() :]}"
        steps.append(text.removeprefix("(").removesuffix(")"))
    return "=".join(steps)
