"""200 hostile answers through the reward pool, with ordinary ones before and after: who survives, and how fast.

    python scripts/hostile_answers.py

Prints one table. Exits with 1 if an ordinary answer is scored wrongly or a hostile one scores above 0.
"""

from __future__ import annotations

import sys
import time
from collections import Counter

from rich.console import Console
from rich.table import Table

from dapo.records import Completion, Prompt
from dapo.rewards.pool import RewardPool
from dapo.rewards.settings import RewardSettings

TOWER = r"\boxed{\dfrac{5^{\left(5^{\left(5^{\left(5^5\right)}\right)}-4\right)}-5}{16}}"
HOSTILE = (
    r"\boxed{9^{9^{9^9}}}",
    TOWER,
    r"\boxed{" + "(" * 5000 + "1" + ")" * 5000 + "}",
    r"\boxed{" + r"\frac{1}{" * 800 + "2" + "}" * 800 + "}",
    r"\boxed{" * 20000,
    "{" * 100_000,
    r"\boxed{" + "9" * 200_000 + "}",
    r"\boxed{99999999999999!}",
    r"\boxed{10^{10^{10}}}",
    r"\boxed{\sum_{k=1}^{10^{9}} k!}",
    r"\boxed{\int_0^1 x^{x^{x^x}} dx}",
    r"\boxed{\sqrt[\infty]{-1}}",
    "\x00\ud800\ufffe" * 1000,
    r"\boxed{1/0}",
    r"\boxed{\text{__import__('os').system('true')}}",
    "Answer: " * 50_000,
    r"\boxed{x^{2}+" * 3000 + "1" + "}" * 3000,
    r"\boxed{\binom{10^8}{5\cdot 10^7}}",
    r"\boxed{(a+b)^{100000}}",
    r"\boxed{\{" + ",".join(map(str, range(20_000))) + r"\}}",
)


def main() -> int:
    settings = RewardSettings(reward="math", reward_timeout_s=2.0)
    table = Table("answers", "count", "right", "scored 0", "seconds", "answers / s")
    faults: list[str] = []
    with RewardPool(settings) as pool:
        pool.start()
        _ordinary(pool, "ordinary, before", table, faults)
        _hostile(pool, table, faults)
        _ordinary(pool, "ordinary, after", table, faults)
        failures = {reason: count for reason, count in pool.failures.items() if count}
    console = Console()
    console.print(table)
    console.print(f"not judged, by reason: {failures}")
    for fault in faults:
        console.print(f"[red]{fault}[/red]")
    return 1 if faults else 0


def _ordinary(pool: RewardPool, label: str, table: Table, faults: list[str]) -> None:
    texts = [rf"So the answer is \boxed{{{number}}}." for number in range(400)]
    prompt = Prompt(0, "ordinary", (1,), answer="7")
    seconds, scores = _score(pool, prompt, texts)
    if [score == 1.0 for score in scores] != [number == 7 for number in range(400)]:
        faults.append(f"{label}: scores differ from what they should be")
    _row(table, label, scores, seconds)


def _hostile(pool: RewardPool, table: Table, faults: list[str]) -> None:
    prompt = Prompt(1, "hostile", (1,), answer="4951077")
    texts = [HOSTILE[number % len(HOSTILE)] for number in range(200)]
    seconds, scores = _score(pool, prompt, texts)
    if any(scores):
        right = Counter(text[:40] for text, score in zip(texts, scores, strict=True) if score)
        faults.append(f"hostile answers scored above 0: {dict(right)}")
    _row(table, "hostile", scores, seconds)


def _score(pool: RewardPool, prompt: Prompt, texts: list[str]) -> tuple[float, list[float]]:
    started = time.perf_counter()
    scores = pool.score(prompt, [Completion((), (), text, "stop") for text in texts])
    return time.perf_counter() - started, [score.value for score in scores]


def _row(table: Table, label: str, scores: list[float], seconds: float) -> None:
    right = sum(score > 0 for score in scores)
    cells = (len(scores), right, len(scores) - right, f"{seconds:.2f}", f"{len(scores) / seconds:.0f}")
    table.add_row(label, *map(str, cells))


if __name__ == "__main__":
    sys.exit(main())
