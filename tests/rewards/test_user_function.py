from pathlib import Path
from typing import Any

import pytest

from dapo.errors import RewardError
from dapo.records import Completion, Prompt, Score
from dapo.rewards.user_function import UserFunction, load_user_function

PROMPT = Prompt(
    5, "P", (1, 2, 3), answer="7", row={"prompt": "P", "data_source": "d", "extra_info": {"i": 1}, "level": 4}
)
CHAT = Prompt(5, "<user>P", (1,), messages=({"role": "user", "content": "P"},), row={"level": 4})
SAMPLES = [(0, Completion((8, 9), (-0.5, -1.0), "first", "stop")), (1, Completion((8,), (-2.0,), "second", "stop"))]


def load(folder: Path, source: str, name: str | None = None) -> UserFunction:
    file = folder / "reward.py"
    file.write_text(source)
    return load_user_function(str(file), name)


def test_a_record_reward_sees_every_field(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        "def reward_fn(r):\n"
        "    assert (r.prompt, r.completion, r.answer, r.messages) == ('P', 'first', '7', ())\n"
        "    assert r.tokens == (1, 2, 3, 8, 9) and r.loss_mask == (0, 0, 0, 1, 1)\n"
        "    assert r.logprobs == (0.0, 0.0, 0.0, -0.5, -1.0)\n"
        "    assert r.source_record['level'] == 4\n"
        "    return r.metadata['prompt_index'] + r.metadata['sample_index']\n",
    )
    assert loaded.whole_group is False
    assert loaded.score(PROMPT, SAMPLES[:1]) == [Score(5.0)]  # row 5 + sample 0


def test_compute_score_gets_the_row_by_its_known_names(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    assert (data_source, solution_str, ground_truth, extra_info) == ('d', 'first', '7', {'i': 1})\n"
        "    return {'score': 1.0, 'acc': True, 'pred': '7'}\n",
    )
    assert loaded.score(PROMPT, SAMPLES[:1]) == [Score(1.0, {"acc": 1.0})]


@pytest.mark.parametrize("row", [{}, {"extra_info": None}, {"extra_info": ""}])
def test_compute_score_gets_an_empty_mapping_where_there_is_no_extra_info(tmp_path: Path, row: dict[str, Any]) -> None:
    source = "def compute_score(solution_str, ground_truth, extra_info=None):\n    return extra_info.get('i', 0.5)\n"
    assert load(tmp_path, source).score(Prompt(5, "P", (1,), answer="7", row=row), SAMPLES[:1]) == [Score(0.5)]


def test_compute_score_that_needs_more_than_it_is_given_is_refused_when_it_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(
        RewardError, match="needs tokenizer, which compute_score is not given: it gets data_source, sol"
    ):
        load(tmp_path, "def compute_score(solution_str, ground_truth, tokenizer):\n    return 1.0\n")


def test_a_batch_reward_gets_lists_of_strings_for_a_plain_prompt(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        "def reward_func(prompts, completions, level, completion_ids, **columns):\n"
        "    assert prompts == ['P', 'P'] and level == [4, 4] and completion_ids == [[8, 9], [8]]\n"
        "    assert columns.pop('answer') == columns.pop('ground_truth') == ['7', '7']\n"
        "    assert columns == {'data_source': ['d', 'd'], 'extra_info': [{'i': 1}, {'i': 1}]}\n"
        "    return [len(text) for text in completions]\n",
    )
    assert loaded.whole_group is True
    assert loaded.score(PROMPT, SAMPLES) == [Score(5.0), Score(6.0)]  # "first", "second"


def test_a_batch_reward_gets_messages_for_a_chat_prompt(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        "def reward_func(prompts, completions):\n"
        "    assert prompts == [[{'role': 'user', 'content': 'P'}]] * 2\n"
        "    return [len(c[0]['content']) if c[0]['role'] == 'assistant' else None for c in completions]\n",
    )
    assert loaded.score(CHAT, SAMPLES) == [Score(5.0), Score(6.0)]


def test_a_batch_reward_whose_column_is_missing_names_it(tmp_path: Path) -> None:
    loaded = load(tmp_path, "def reward_func(completions, solution):\n    return [0.0] * 2\n")
    with pytest.raises(RewardError, match=r"row 5, sample 0: the reward needs solution, but the row offers .*level"):
        loaded.score(PROMPT, SAMPLES)


TWO = "def other(record):\n    return 2\n\ndef compute_score(solution_str, ground_truth):\n    return 3\n"


@pytest.mark.parametrize(
    ("source", "name", "score"),
    [
        (TWO, None, 3.0),  # compute_score is a known name
        (TWO, "other", 2.0),
        (TWO + "\ndef reward_fn(record):\n    return 4\n", None, 4.0),  # reward_fn comes first
        ("from math import sqrt\ndef _helper(a):\n    pass\ndef only(record):\n    return 5\n", None, 5.0),
        ("class R:\n    def __call__(self, record):\n        return 6\nreward_fn = R()\n", None, 6.0),
        ("def reward_fn(record, scale=7):\n    return scale\n", None, 7.0),
    ],
)
def test_the_function_is_found(tmp_path: Path, source: str, name: str | None, score: float) -> None:
    assert load(tmp_path, source, name).score(PROMPT, SAMPLES[:1]) == [Score(score)]


@pytest.mark.parametrize(
    ("source", "name", "message"),
    [
        (
            "def a(r):\n    pass\ndef b(r):\n    pass\n",
            None,
            "no function 'reward_fn' or 'compute_score' or 'reward_func'; it defines a, b",
        ),
        ("x = 1\n", None, "defines no public function"),
        (
            "def reward_fn(r):\n    pass\n",
            "reward_fm",
            r"reward_fn_path .*no function 'reward_fm'(?s:.)*did you mean .*reward\.py:reward_fn\?",
        ),
        ("import no_such_module\n", None, "No module named 'no_such_module'.*line 1"),
        ("def reward_fn(r:\n", None, r"SyntaxError.*reward\.py, line 1"),
        ("raise SystemExit(3)\n", None, "does not import: SystemExit: 3"),
        ("async def reward_fn(r):\n    return 1.0\n", None, "asynchronous"),
        ("def reward_fn(a, b):\n    return 1.0\n", None, r"takes \(a, b\).*(?s:.)*compute_score\(data_source"),
        ("def reward_fn(*, a):\n    return 1.0\n", None, "none of the three known contracts"),
        ("def reward_fn():\n    return 1.0\n", None, "none of the three known contracts"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path: Path, source: str, name: str | None, message: str) -> None:
    with pytest.raises(RewardError, match=message):
        load(tmp_path, source, name)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RewardError, match=r"nowhere\.py, which is not a file"):
        load_user_function(str(tmp_path / "nowhere.py"), None)


def test_an_exception_names_row_sample_last_frame_and_answer(tmp_path: Path) -> None:
    loaded = load(tmp_path, "def reward_fn(r):\n    return inner(r)\n\ndef inner(r):\n    return int(r.completion)\n")
    with pytest.raises(RewardError) as caught:
        loaded.score(PROMPT, SAMPLES[1:])
    problem = caught.value.problem
    assert problem.startswith(
        "reward.py:reward_fn, row 5, sample 1: the reward function raised ValueError: invalid literal for int()"
    )
    assert "line 5, in inner: return int(r.completion)" in problem
    assert "answer: 'second'" in problem


def test_a_reward_that_returns_none_names_row_and_sample(tmp_path: Path) -> None:
    """B47."""
    loaded = load(tmp_path, "def reward_fn(r):\n    pass\n")
    with pytest.raises(RewardError, match="row 5, sample 1: the reward is None"):
        loaded.score(PROMPT, SAMPLES[1:])
