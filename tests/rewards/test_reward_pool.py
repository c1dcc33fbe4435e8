import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dapo.errors import RewardError
from dapo.records import Completion, Prompt, Score
from dapo.rewards import RewardPool, RewardSettings, check_answers, check_reward

RIGHT, WRONG = Score(1.0, {"acc": 1.0}), Score(0.0, {"acc": 0.0})
NESTED_TOWER = r"\boxed{\dfrac{5^{\left(5^{\left(5^{\left(5^5\right)}\right)}-4\right)}-5}{16}}"


def row(answer: object = "7", index: int = 3) -> Prompt:
    return Prompt(index, "p", (1, 2), answer=answer, row={"answer": answer})


def written(*texts: str) -> list[Completion]:
    return [Completion((5,), (-1.0,), text, "stop") for text in texts]


def user_settings(folder: Path, body: str, **limits: float) -> RewardSettings:
    (folder / "reward.py").write_text(body)
    return RewardSettings(reward_fn_path=str(folder / "reward.py"), **{"reward_workers": 1, **limits})


@pytest.fixture(scope="module")
def math_pool() -> Iterator[RewardPool]:
    with RewardPool(RewardSettings(reward="math", reward_workers=2, reward_timeout_s=2)) as pool:
        yield pool


def test_each_answer_gets_one_score_in_order(math_pool: RewardPool) -> None:
    """B51."""
    texts = ["\\boxed{7}", "I do not know.", "\\boxed{137}", "", "\\boxed{7}"]
    assert math_pool.score(row(), written(*texts)) == [RIGHT, WRONG, WRONG, WRONG, RIGHT]
    assert math_pool.score(row(), []) == []


@pytest.mark.parametrize(("answer", "text"), [("4951077", "\\boxed{9^{9^{9^9}}}"), ("7", NESTED_TOWER)])
def test_a_power_tower_scores_zero_in_time_and_its_worker_is_replaced(
    math_pool: RewardPool, answer: str, text: str
) -> None:
    """B50: limit 2 s, and 2 s to spare."""
    before, begin = math_pool.failures, time.monotonic()
    scores = math_pool.score(row(answer), written(text, f"\\boxed{{{answer}}}", f"\\boxed{{{answer}}}"))
    assert time.monotonic() - begin < 4
    assert scores == [WRONG, RIGHT, RIGHT]
    assert sum(math_pool.failures.values()) == sum(before.values()) + 1
    assert math_pool.score(row(answer), written(f"\\boxed{{{answer}}}")) == [RIGHT]


def test_groups_scored_from_many_threads_keep_their_own_scores(math_pool: RewardPool) -> None:
    with ThreadPoolExecutor(4) as threads:
        golds = list(range(20))
        results = list(threads.map(lambda n: math_pool.score(row(n), written("\\boxed{3}", f"\\boxed{{{n}}}")), golds))
    assert results == [[RIGHT if n == 3 else WRONG, RIGHT] for n in golds]


def test_a_row_without_answer_stops_and_names_the_row(math_pool: RewardPool) -> None:
    with pytest.raises(RewardError, match="row 3: the answer is None"):
        math_pool.score(row(None), written("\\boxed{7}", "\\boxed{8}"))
    assert math_pool.score(row(), written("\\boxed{7}")) == [RIGHT]  # the pool goes on


def test_exact_number_scores_a_group_of_64_in_milliseconds() -> None:
    with RewardPool(RewardSettings(reward="exact_number", reward_workers=1)) as pool:
        pool.score(row(), written("7"))
        begin = time.monotonic()
        assert pool.score(row(), written(*["The sum is 7."] * 64)) == [RIGHT] * 64
        assert time.monotonic() - begin < 0.2  # some 3 ms on an idle machine


def _score_in_process(queue: multiprocessing.SimpleQueue) -> None:
    with RewardPool(RewardSettings(reward="exact_number", reward_workers=1)) as pool:
        queue.put(pool.score(row(), written("7", "8")))


def test_scores_are_the_same_from_a_thread_and_a_process() -> None:
    here: list[list[Score]] = []
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    process = context.Process(target=_score_in_process, args=(queue,), daemon=True)
    process.start()
    there = queue.get()
    process.join()

    def score() -> None:
        with RewardPool(RewardSettings(reward="exact_number", reward_workers=1)) as pool:
            here.append(pool.score(row(), written("7", "8")))

    thread = threading.Thread(target=score)
    thread.start()
    thread.join()
    assert here == [there] == [[RIGHT, WRONG]]


HOSTILE = """
import os, time
def reward_fn(record):
    text = record.completion
    if text == "hang": 9 ** 9 ** 9 ** 9
    if text == "sleep": time.sleep(60)
    if text == "die": os._exit(3)
    if text == "abort": os.abort()
    if text == "memory": bytearray(400 * 2**20)
    print("noise on standard output")
    return {"score": 1.0, "format": 0.5}
"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [("hang", "timeout"), ("sleep", "timeout"), ("die", "crash"), ("abort", "crash"), ("memory", "memory")],
)
def test_an_answer_that_takes_its_worker_down_scores_zero_and_is_counted(
    tmp_path: Path, text: str, reason: str
) -> None:
    settings = user_settings(tmp_path, HOSTILE, reward_timeout_s=1, reward_memory_mb=300)
    with RewardPool(settings) as pool:
        fine = Score(1.0, {"format": 0.5})
        scores = pool.score(row(), written("ok", text, "ok", "ok"))
        assert scores == [fine, Score(0.0, {"format": 0.0}), fine, fine]  # its siblings' metrics, as 0.0
        assert pool.failures == {"timeout": 0, "memory": 0, "crash": 0, "checker_error": 0} | {reason: 1}
        assert pool.score(row(), written(text)) == [Score(0.0, {"format": 0.0})]  # known from earlier groups


def test_the_memory_limit_is_the_settings(tmp_path: Path) -> None:
    with RewardPool(user_settings(tmp_path, HOSTILE, reward_memory_mb=1000)) as pool:
        assert pool.score(row(), written("memory"))[0].value == 1.0  # 400 MiB are fine now


def test_the_time_limit_is_the_settings_and_counts_per_answer(tmp_path: Path) -> None:
    body = "import time\ndef reward_fn(record):\n    time.sleep(0.4)\n    return 1\n"
    with RewardPool(user_settings(tmp_path, body, reward_timeout_s=1)) as pool:
        begin = time.monotonic()
        assert [s.value for s in pool.score(row(), written("a", "b", "c"))] == [1, 1, 1]  # 1.2 s in all
        assert time.monotonic() - begin > 1.1  # one worker: one after another
    with RewardPool(user_settings(tmp_path, body, reward_timeout_s=0.2)) as pool:
        assert [s.value for s in pool.score(row(), written("a"))] == [0]


def test_workers_score_side_by_side(tmp_path: Path) -> None:
    body = "import os, time\ndef reward_fn(record):\n    time.sleep(0.2)\n    return os.getpid()\n"
    with RewardPool(user_settings(tmp_path, body, reward_workers=3)) as pool:
        assert len({score.value for score in pool.score(row(), written(*"abcdef"))}) == 3


def test_a_batch_reward_is_called_once_with_the_whole_group_and_n_times_the_limit(tmp_path: Path) -> None:
    body = "import time\ndef reward_func(prompts, completions, answer):\n    time.sleep(0.7)\n"
    body += "    return [len(completions)] * len(answer)\n"
    with RewardPool(user_settings(tmp_path, body, reward_workers=2, reward_timeout_s=0.5)) as pool:
        assert [s.value for s in pool.score(row(), written(*"abcd"))] == [4, 4, 4, 4]  # limit 2.0 s
        assert [s.value for s in pool.score(row(), written("a"))] == [0]  # limit 0.5 s
        assert pool.failures["timeout"] == 1


def test_an_exception_in_a_persons_reward_stops_with_row_and_frame(tmp_path: Path) -> None:
    body = "def reward_fn(record):\n    return float(record.completion)\n"
    with RewardPool(user_settings(tmp_path, body)) as pool:
        future = pool.submit(row(), written("1.5", "ten", "2"))
        with pytest.raises(RewardError, match=r"row 3, sample 1: .*ValueError.*\n?.*line 2, in reward_fn"):
            future.result()
        assert [s.value for s in pool.score(row(), written("1.5", "2"))] == [1.5, 2.0]
        assert sum(pool.failures.values()) == 0


def test_an_internal_error_of_the_checker_is_counted_and_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import dapo.rewards.built_in as b\ndef broken(text, answer):\n    raise KeyError('ours')\n"
        "b.BUILT_IN['exact_number'] = broken\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with RewardPool(RewardSettings(reward="exact_number", reward_workers=1)) as pool:
        assert pool.score(row(), written("7")) == [WRONG]
        assert pool.failures["checker_error"] == 1
    assert "row 3, sample 0 scored 0.0 unjudged (checker_error: KeyError: 'ours'" in caplog.text


def test_a_reward_that_does_not_load_is_an_error_at_start(tmp_path: Path) -> None:
    with (
        pytest.raises(RewardError, match=r"reward\.py, which does not import: .*no_such"),
        RewardPool(user_settings(tmp_path, "import no_such\n", reward_workers=2)),
    ):
        pass
    with (
        pytest.raises(RewardError, match="did not start: its process ended with code 4"),
        RewardPool(user_settings(tmp_path, "import os; os._exit(4)\n")),
    ):
        pass


def test_a_reward_may_import_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_reward.py").write_text("VALUE = 4\n")
    body = "from neighbour_of_reward import VALUE\ndef reward_fn(record):\n    return VALUE\n"
    with RewardPool(user_settings(tmp_path, body)) as pool:
        assert pool.score(row(), written("a"))[0].value == 4


def _gone(pid: int, within_s: float = 5.0) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        with contextlib.suppress(FileNotFoundError):
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        if not Path(f"/proc/{pid}").exists():
            return True
        time.sleep(0.02)
    return False


PIDS = """
import os, subprocess, time
def reward_fn(record):
    if record.completion == "child":
        return subprocess.Popen(["sleep", "60"]).pid
    if record.completion == "hang":
        open(record.answer, "w").write(str(os.getpid()))
        9 ** 9 ** 9 ** 9
    return os.getpid()
"""


def test_close_ends_workers_their_children_and_pending_groups(tmp_path: Path) -> None:
    pool = RewardPool(user_settings(tmp_path, PIDS))
    worker, child = (int(s.value) for s in pool.score(row(), written("pid", "child")))
    pending = pool.submit(row(str(tmp_path / "pid")), written("hang"))
    time.sleep(0.2)
    begin = time.monotonic()
    pool.close()
    assert time.monotonic() - begin < 2
    assert _gone(worker)
    assert _gone(child)
    with pytest.raises(RewardError, match="closed"):
        pending.result(timeout=2)
    with pytest.raises(RewardError, match="closed"):
        pool.score(row(), written("pid"))


def test_a_worker_killed_from_outside_costs_no_answer(tmp_path: Path) -> None:
    with RewardPool(user_settings(tmp_path, PIDS)) as pool:
        pid = int(pool.score(row(), written("pid"))[0].value)
        os.kill(pid, signal.SIGINT)  # Ctrl-C is not for workers
        assert int(pool.score(row(), written("pid"))[0].value) == pid
        os.kill(pid, signal.SIGKILL)
        assert _gone(pid)
        assert int(pool.score(row(), written("pid"))[0].value) != pid
        assert sum(pool.failures.values()) == 0


RUN = """
import sys
from dapo.records import Completion, Prompt
from dapo.rewards import RewardPool, RewardSettings
with RewardPool(RewardSettings(reward_fn_path=sys.argv[1], reward_workers=1)) as pool:
    print("scoring", flush=True)
    pool.score(Prompt(0, "p", (), answer=sys.argv[2]), [Completion((), (), "hang", "stop")])
"""


def test_a_hanging_worker_dies_with_a_killed_run(tmp_path: Path) -> None:
    path = user_settings(tmp_path, PIDS).reward_fn_path
    note = tmp_path / "pid"
    run = subprocess.Popen([sys.executable, "-c", RUN, str(path), str(note)], stdout=subprocess.PIPE)
    while not (note.exists() and note.read_text()):
        assert run.poll() is None
        time.sleep(0.02)
    run.kill()
    run.communicate()
    assert _gone(int(note.read_text()))


def test_a_worker_imports_no_model_library(tmp_path: Path) -> None:
    body = "import sys\ndef reward_fn(record):\n    return float(record.completion in sys.modules)\n"
    with RewardPool(user_settings(tmp_path, body)) as pool:
        names = ["dapo.rewards.worker", "torch", "transformers", "datasets", "numpy"]
        assert [s.value for s in pool.score(row(), written(*names))] == [1, 0, 0, 0, 0]


def test_check_reward_returns_what_a_run_would_see(tmp_path: Path) -> None:
    settings = user_settings(tmp_path, HOSTILE)
    checked = check_reward(settings, [(row(), ["ok", "die"]), (row(index=4), ["ok"])])
    assert [[score.value for score in scores] for scores in checked.scores] == [[1.0, 0.0], [1.0]]
    assert checked.failures["crash"] == 1


def test_answers_that_can_never_be_matched_are_found_before_the_run(tmp_path: Path) -> None:
    rows = [row("7", 0), row("seven", 1)]
    check_answers(RewardSettings(reward="math"), rows)
    with pytest.raises(RewardError, match="row 1: the answer 'seven' is not one number"):
        check_answers(RewardSettings(reward="exact_number"), rows)
    with pytest.raises(RewardError, match="row 2: the answer is ''"):
        check_answers(RewardSettings(reward="math"), [row("", 2)])
    check_answers(user_settings(tmp_path, HOSTILE), [row(None)])


BATCH = "def reward_func(completions, answer, level):\n    return [float(c == answer[0]) for c in completions]\n"
VERL = "def compute_score(solution_str, ground_truth):\n    return float(solution_str == ground_truth)\n"


@pytest.mark.parametrize(
    ("body", "rows", "problem"),
    [
        (
            BATCH,
            [{"answer": "1"}, {"answer": "2"}],
            "reward.py:reward_func needs level, but row 0 and 1 more have none; ",
        ),
        (
            BATCH,
            [{"answer": "1", "level": 4}, {"answer": "2"}],
            "reward.py:reward_func needs level, but row 1 has none; row 1 offers answer, ground_truth",
        ),
        (
            BATCH,
            [{"level": None}],
            r"needs answer, but row 0 has none \(nor reward_model.ground_truth\); row 0 offers level",
        ),
        (VERL, [{"answer": "1"}, {"answer": None}], "reward.py:compute_score needs ground_truth, but row 1 has none"),
        (VERL, [{}], "needs ground_truth, but row 0 has none .*; row 0 offers nothing"),
    ],
)
def test_a_row_without_what_a_persons_reward_needs_is_found_before_a_score(
    tmp_path: Path, body: str, rows: list[dict[str, Any]], problem: str
) -> None:
    prompts = [Prompt(n, "P", (1,), answer=columns.get("answer"), row=columns) for n, columns in enumerate(rows)]
    with RewardPool(user_settings(tmp_path, body)) as pool, pytest.raises(RewardError, match=problem):
        pool.check(prompts)


@pytest.mark.parametrize(
    "body",
    [
        BATCH.replace("level", "level=0"),
        BATCH.replace("answer, level", "ground_truth, **columns").replace("answer[0]", "columns['answer'][0]"),
        VERL,
        "def reward_fn(record):\n    return float(record.completion == record.answer)\n",
    ],
)
def test_the_answer_of_dapo_math_is_found_by_every_contract(tmp_path: Path, body: str) -> None:
    prompt = Prompt(0, "P", (1,), answer="7", row={"reward_model": {"ground_truth": "7"}})
    with RewardPool(user_settings(tmp_path, body)) as pool:
        pool.check([prompt])
        assert [score.value for score in pool.score(prompt, written("7", "8"))] == [1.0, 0.0]


def test_a_default_stands_in_for_what_a_row_lacks(tmp_path: Path) -> None:
    body = (
        "def compute_score(solution_str, ground_truth='7', data_source='mine'):\n"
        "    return float((solution_str, data_source) == (ground_truth, 'mine'))\n"
    )
    with RewardPool(user_settings(tmp_path, body)) as pool:
        pool.check([row(None)])
        assert pool.score(row(None), written("7"))[0].value == 1.0


def test_rewards_that_may_do_with_any_row_are_not_asked_about_columns(tmp_path: Path) -> None:
    for settings in (RewardSettings(reward="math", reward_workers=1), user_settings(tmp_path, HOSTILE)):
        with RewardPool(settings) as pool:
            pool.check([Prompt(0, "P", (1,))])
