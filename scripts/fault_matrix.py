"""Break a real small run in every way that a machine can, resume it, and compare with the run that nothing happened to.

    python scripts/fault_matrix.py [--kills 50] [--terms 20] [--seed 1]

Four parts, each compared byte for byte (model, checkpoint, rollouts; metrics without times):

    kill -9         while rollouts, rewards, updates, log lines and every stage of saving are under way
    SIGTERM         at the same places; the exit code must be 143 (or the signal itself once the run is over)
    full disk       the run folder on a file system that is full sooner or later (tmpfs for root, else file size limits)
    damaged files   each file of the newest checkpoint truncated, with a bit flipped, and removed

Prints a table in Markdown; the exit code is 1 if anything differed. Linux only.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from dapo.cli.main import main as dapo

PLACES = {
    "rollout": ("dapo.coordination.run", "Run._show_collection"),
    "reward": ("dapo.coordination.generation", "ScoredGeneration._group"),
    "optimizer step": ("dapo.training.update", "Trainer._optimizer_step"),
    "metrics line": ("dapo.tracking.metrics_log", "MetricsLog.write"),
    "rollouts line": ("dapo.tracking.rollout_log", "RolloutLog.write"),
    "saving: state": ("dapo.checkpoints.run_state", "RunState.to_json"),
    "saving: optimizer": ("dapo.training.optimizer", "MasterAdamW.state"),
    "saving: weights": ("dapo.models.saved_state", "save_model"),
    "saving: checksums": ("dapo.checkpoints.store", "write_manifest"),
    "saving: sync": ("dapo.checkpoints.whole_folder", "_sync_tree"),
    "saving: rename": ("dapo.checkpoints.whole_folder", "_replace"),
    "forgetting old ones": ("dapo.checkpoints.store", "remove"),
    "final export": ("dapo.coordination.saving", "Saving.export"),
}
"""Where a run can be interrupted: label -> module, function."""
TIMINGS = ("seconds_", "rollout_tokens_per_s", "train_tokens_per_s")
UPDATES = 6
SHORTEST_MESSAGE = 200
"""Bytes: what a run says goes to a file too, under the same limit."""
LONGEST_DELAY_S = 0.01
"""A signal comes up to this long after the place was reached."""


@dataclass(frozen=True)
class Moment:
    """The `occurrence`-th time that a run comes to a place, and a little later."""

    place: str
    occurrence: int
    delay_s: float


@dataclass
class Tally:
    """Attempts and what went wrong, by part and place."""

    attempts: Counter[tuple[str, str]] = field(default_factory=Counter)
    interrupted: Counter[tuple[str, str]] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, part: str, place: str, *, interrupted: bool, problem: str | None) -> None:
        self.attempts[part, place] += 1
        self.interrupted[part, place] += interrupted
        if problem:
            self.failures.append(f"{part}, {place}: {problem}")
            print(self.failures[-1], file=sys.stderr)

    def table(self) -> str:
        lines = [
            "| fault | where | tried | run was cut short | differences after the resume |",
            "|---|---|---|---|---|",
        ]
        for part, place in self.attempts:
            wrong = sum(failure.startswith(f"{part}, {place}:") for failure in self.failures)
            tried, cut = self.attempts[part, place], self.interrupted[part, place]
            lines.append(f"| {part} | {place} | {tried} | {cut} | {wrong} |")
        total = sum(self.attempts.values())
        lines.append(f"| all | | {total} | {sum(self.interrupted.values())} | {len(self.failures)} |")
        return "\n".join(lines)


class Runs:
    """Starts runs of one recipe as forks of this process."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "data.jsonl").write_text("".join(f'{{"prompt": "{n} plus {n} is"}}\n' for n in range(12)))
        (root / "reward.py").write_text(
            "def reward_fn(record):\n    return float(sum(map(ord, record.completion)) % 2)\n"
        )
        make_model(root / "model")
        # In this process, so that the runs, its forks, find everything imported.
        with contextlib.redirect_stdout(io.StringIO()):
            dapo(["train", *self._flags(), "--save-path", str(root / "warm-up"), "--max-steps", "1"])

    def start(self, folder: Path, **how: Any) -> tuple[int, str]:
        return self._dapo(["train", *self._flags(), "--save-path", str(folder)], **how)

    def resume(self, folder: Path, **how: Any) -> tuple[int, str]:
        """Goes on; a run that was cut short before it had a folder is started."""
        if not (folder / "config.toml").exists():
            return self.start(folder, **how)
        return self._dapo(["train", "--resume", str(folder)], **how)

    def _flags(self) -> list[str]:
        settings = {
            "ckpt": self.root / "model",
            "dataset_path": self.root / "data.jsonl",
            "reward_fn_path": self.root / "reward.py",
            "train_devices": "cpu",
            "reward_workers": 1,
            "n_samples": 4,
            "max_new_tokens": 6,
            "batch_size": 2,
            "dapo_gen_batch_size": 5,
            "max_staleness": 2,
            "mini_bs": 4,
            "lr": 1e-2,
            "epochs": 9,
            "max_steps": UPDATES,
            "save_interval": 1,
        }
        return [word for name, value in settings.items() for word in ("--" + name.replace("_", "-"), str(value))]

    def _dapo(
        self,
        words: list[str],
        *,
        moment: Moment | None = None,
        signal_number: int = signal.SIGKILL,
        counts: Path | None = None,
        file_limit: int | None = None,
    ) -> tuple[int, str]:
        """Exit code (minus the signal if one ended it) and output."""
        reached, announce = os.pipe()

        def work() -> None:
            os.close(reached)
            watch(moment, announce, counts)
            if file_limit is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))
            os._exit(run_command(words))

        log = self.root / "log.txt"
        child = self._fork(work, log)
        os.close(announce)
        if moment is not None and os.read(reached, 1):
            time.sleep(moment.delay_s)
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal_number)
        os.close(reached)
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status), log.read_text(errors="replace")

    def _fork(self, work: Callable[[], None], log: Path) -> int:
        sys.stdout.flush()
        child = os.fork()
        if child:
            return child
        try:
            with log.open("wb") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(99)  # in any case: what this process holds is the parent's


def run_command(words: list[str]) -> int:
    try:
        code = dapo(words)
    except SystemExit as ended:
        code = int(ended.code or 0)
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def make_model(folder: Path) -> None:
    """A random Llama of two layers that reads letters."""
    import torch
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    letters = "</s>", "<unk>", *"abcdefghijklmnopqrstuvwxyz0123456789 +=.,"
    rust = Tokenizer(models.WordLevel({letter: number for number, letter in enumerate(letters)}, unk_token="<unk>"))
    rust.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    rust.decoder = decoders.Fuse()
    PreTrainedTokenizerFast(tokenizer_object=rust, eos_token="</s>", unk_token="<unk>").save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(letters),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        initializer_range=0.3,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=0,
    )
    LlamaForCausalLM(config).save_pretrained(folder)


def watch(moment: Moment | None, announce: int, counts: Path | None) -> None:
    """Count how often each place is reached; write a byte to `announce` at the moment, or the counts to a file."""
    seen: Counter[str] = Counter()

    def counted(label: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            seen[label] += 1
            if counts is not None:
                counts.write_text(json.dumps(seen))
            if moment is not None and (moment.place, moment.occurrence) == (label, seen[label]):
                os.write(announce, b".")
            return real(*arguments, **named)

        return call

    for label, (module, name) in PLACES.items():
        *owners, last = name.split(".")
        holder = importlib.import_module(module)
        for owner in owners:
            holder = getattr(holder, owner)

        setattr(holder, last, counted(label, getattr(holder, last)))


def outcome(run: Path) -> dict[str, Any]:
    """Everything that must be equal."""
    files = {
        path.relative_to(run).as_posix(): path.read_bytes()
        for folder in ("final", "checkpoints")
        for path in sorted((run / folder).rglob("*"))
        if path.is_file()
    }
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    metrics = [{name: value for name, value in line.items() if not name.startswith(TIMINGS)} for line in lines]
    return {"metrics.jsonl": metrics, "rollouts.jsonl": (run / "rollouts.jsonl").read_bytes(), **files}


def difference(run: Path, unbroken: dict[str, Any]) -> str | None:
    try:
        found = outcome(run)
    except (OSError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    names = [name for name in sorted(found.keys() | unbroken.keys()) if found.get(name) != unbroken.get(name)]
    return f"{', '.join(names)} differ" if names else None


def check_resumed(runs: Runs, run: Path, unbroken: dict[str, Any], must_say: str = "") -> str | None:
    code, said = runs.resume(run)
    if code != 0:
        return f"the resume ended with {code}:\n{said}"
    if must_say not in said:
        return f"the resume did not say {must_say!r}:\n{said}"
    return difference(run, unbroken)


def moments(number: int, counts: dict[str, int], dice: random.Random) -> Iterator[Moment]:
    """Every place in turn, at a random one of its occurrences."""
    places = [place for place in PLACES if counts.get(place)]
    for turn in range(number):
        place = places[turn % len(places)]
        yield Moment(place, dice.randint(1, counts[place]), dice.uniform(0, LONGEST_DELAY_S))


def try_signals(
    runs: Runs, tally: Tally, unbroken: dict[str, Any], when: Iterator[Moment], number: int, part: str
) -> None:
    for moment in when:
        run = runs.root / "run"
        code, said = runs.start(run, moment=moment, signal_number=number)
        interrupted = not (run / "final").exists()
        # Behind the run's end a signal comes too late, or ends a process that is taking itself down.
        allowed = {-signal.SIGKILL} if number == signal.SIGKILL else {143}
        allowed |= set() if interrupted else {0, -number}
        problem = None if code in allowed else f"exit code {code}:\n{said}"
        problem = problem or check_resumed(runs, run, unbroken)
        tally.add(part, moment.place, interrupted=interrupted, problem=problem and f"{moment}: {problem}")
        shutil.rmtree(run)


@contextlib.contextmanager
def small_disk(root: Path, size: int) -> Iterator[Path]:
    folder = root / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)
        folder.rmdir()


def try_full_disks(runs: Runs, tally: Tally, unbroken: dict[str, Any], need: int, steps: int) -> None:
    """Disks from nothing to almost enough for the whole run."""
    page = resource.getpagesize()
    for step in range(1, steps):
        size = max(need * step // steps // page, 1) * page
        with small_disk(runs.root, size) as disk:
            code, said = runs.start(disk / "run")
            clear = "error:" in said and "fix:" in said and "Traceback" not in said
            problem = None if code == 0 or (code in (1, 2) and clear) else f"{size} bytes: exit code {code}:\n{said}"
            subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
            problem = problem or check_resumed(runs, disk / "run", unbroken)
            tally.add("full disk", "tmpfs", interrupted=code != 0, problem=problem)


def try_file_limits(runs: Runs, tally: Tally, unbroken: dict[str, Any], limits: list[int]) -> None:
    """The same for whoever may not mount: writes beyond a size fail."""
    for limit in (each for each in limits if each >= SHORTEST_MESSAGE):
        run = runs.root / "run"
        code, said = runs.start(run, file_limit=limit)
        clear = "error:" in said and "fix:" in said and "Traceback" not in said
        problem = None if code == 0 or (code in (1, 2) and clear) else f"{limit} bytes: exit code {code}:\n{said}"
        problem = problem or check_resumed(runs, run, unbroken)
        tally.add("full disk", "file size limit", interrupted=code != 0, problem=problem)
        shutil.rmtree(run, ignore_errors=True)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def try_damage(runs: Runs, tally: Tally, unbroken: dict[str, Any], whole: Path) -> None:
    """whole: the unbroken run; its newest checkpoint is damaged, so the resume does its last update over."""
    newest = max((whole / "checkpoints").iterdir())
    for file in sorted(path.relative_to(whole) for path in newest.rglob("*") if path.is_file()):
        for harm, name in ((truncate, "truncated"), (flip_a_bit, "bit flipped"), (Path.unlink, "removed")):
            run = runs.root / "run"
            shutil.copytree(whole, run)
            harm(run / file)
            problem = check_resumed(runs, run, unbroken, must_say="is damaged")
            tally.add("damaged file", name, interrupted=True, problem=problem and f"{file}: {problem}")
            shutil.rmtree(run)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--terms", type=int, default=20)
    parser.add_argument("--disks", type=int, default=24, help="sizes of the full disk")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    dice, tally = random.Random(arguments.seed), Tally()
    with tempfile.TemporaryDirectory() as root:
        runs = Runs(Path(root))
        whole, counts = Path(root) / "whole", Path(root) / "counts.json"
        code, said = runs.start(whole, counts=counts)
        if code:
            raise SystemExit(said)
        unbroken, seen = outcome(whole), json.loads(counts.read_text())
        again = Path(root) / "again"
        runs.start(again)
        if problem := difference(again, unbroken):
            raise SystemExit(f"two unbroken runs are not equal: {problem}")
        kills, terms = moments(arguments.kills, seen, dice), moments(arguments.terms, seen, dice)
        try_signals(runs, tally, unbroken, kills, signal.SIGKILL, "kill -9")
        try_signals(runs, tally, unbroken, terms, signal.SIGTERM, "SIGTERM")
        if os.geteuid() == 0:
            need = 2 * sum(path.stat().st_size for path in whole.rglob("*") if path.is_file())
            try_full_disks(runs, tally, unbroken, need, arguments.disks)
        sizes = sorted({path.stat().st_size for path in whole.rglob("*") if path.is_file()})
        try_file_limits(runs, tally, unbroken, [size - 1 for size in sizes if size])
        try_damage(runs, tally, unbroken, whole)
    print(tally.table())
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
