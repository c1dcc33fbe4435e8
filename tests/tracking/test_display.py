"""What a person sees: the same story on a terminal and in a log."""

import io
import os
import pty
import re
import time
from contextlib import suppress

import pytest
from rich.console import Console

from dapo.tracking.display import (
    SUPERVISED,
    BeforeAfter,
    CollectionProgress,
    Outcome,
    before_after_table,
    printable,
)
from dapo.tracking.live_display import LiveDisplay
from dapo.tracking.make_display import make_display
from dapo.tracking.plain_display import PlainDisplay

FACTS = {"model": "smollm2-135m", "data": "task:arithmetic, 256 prompts"}
METRICS = {
    "candidate_reward_mean": 0.4123,
    "entropy": 0.61,
    "pg_clipfrac": 0.031,
    "response_length_mean": 12.34,
    "rollout_tokens_per_s": 812.3,
    "seconds_total": 6.24,
    "dapo_qualified_groups": 8,
    "dapo_generated_groups": 12,
}
OUTCOME = Outcome(
    [
        BeforeAfter("held-out accuracy", "heldout_accuracy", 0.203, 0.812),
        BeforeAfter("tokens per answer", "heldout_response_length", 14.2, 6.0),
    ],
    {"model": "runs/x/final", "metrics": "runs/x/metrics.jsonl"},
)


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


LEARNED = {"loss": 2.3149, "perplexity": 10.12, "lr": 1e-3, "train_tokens_per_s": 4321.0, "epoch": 1}
"""One update of supervised training."""
PROGRESS = CollectionProgress(
    step=3,
    round=2,
    max_rounds=10,
    groups_kept=5,
    groups_needed=8,
    groups_generated=11,
    all_correct=2,
    all_wrong=1,
    sequences_done=118,
    sequences_total=128,
    tokens=3456,
    seconds=4.0,
)


def plain_run(stream=None):
    stream, clock = stream or io.StringIO(), Clock()
    display = PlainDisplay(stream, clock=clock)
    return display, stream, clock


def live_display(width=100, height=40):
    clock = Clock()
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, highlight=False)
    return LiveDisplay(console, clock=clock), clock


def screen(display, width=100, height=40):
    """The frame as a person sees it, without colours."""
    console = Console(width=width, height=height, color_system=None, highlight=False)
    with console.capture() as capture:
        console.print(display)
    return capture.get()


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    return Terminal()


# Both displays


@pytest.mark.parametrize("kind", ["plain", "live"])
def test_a_whole_run_tells_its_story(kind, terminal):
    stream = terminal if kind == "live" else io.StringIO()
    display = make_display(stream)
    assert isinstance(display, LiveDisplay if kind == "live" else PlainDisplay)
    with display:
        display.start("one-digit addition", FACTS, 2)
        display.evaluating(3, 100)
        display.step_done(0, {"heldout_accuracy": 0.203})
        display.collecting(PROGRESS)
        display.updating(1, 8)
        display.warning("one optimizer step per batch [bold]")
        display.step_done(1, METRICS)
        display.step_done(2, {**METRICS, "heldout_accuracy": 0.812})
        display.finish(OUTCOME)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    for said in ("one-digit addition", "smollm2-135m", "0.203", "0.412", "0.812", "runs/x/final", "+0.609"):
        assert said in text.replace("\N{NO-BREAK SPACE}", " ")
    assert "warning: one optimizer step per batch [bold]" in text


@pytest.mark.parametrize("kind", ["plain", "live"])
def test_the_last_line_is_the_ending_and_is_not_broken(kind, terminal):
    """The command in it can be pasted, however narrow the terminal."""
    stream = terminal if kind == "live" else io.StringIO()
    ending = "ended after 2 updates: max_steps 2 is reached; go on with: dapo train --resume " + "x" * 200
    with make_display(stream) as display:
        display.start("addition", FACTS, 2)
        display.finish(Outcome(OUTCOME.rows, OUTCOME.places, ending))
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    assert text.splitlines()[-1] == ending


@pytest.mark.parametrize("make", [lambda: plain_run()[0], lambda: live_display()[0]])
def test_telling_the_display_about_every_token_is_cheap(make):
    display = make()
    began = time.perf_counter()
    for _ in range(2000):
        display.collecting(PROGRESS)
    assert (time.perf_counter() - began) / 2000 < 50e-6


@pytest.mark.parametrize("make", [plain_run, live_display])
def test_a_hostile_answer_in_a_message_cannot_control_the_terminal(make):
    display = make()[0]
    display.notice("answer: \x1b[2J\x07 \u202e")
    stream = display._stream if isinstance(display, PlainDisplay) else display._console.file
    assert "answer: \N{REPLACEMENT CHARACTER}[2J" in stream.getvalue()
    assert not set("\x1b\x07\u202e") & set(stream.getvalue())


def test_printable_keeps_all_writing():
    assert printable("é 数 \N{GRINNING FACE}\n\u3000x\ty") == "é 数 \N{GRINNING FACE}\n\u3000x  y"


# Which one


def test_a_terminal_gets_the_live_screen(terminal):
    assert isinstance(make_display(terminal), LiveDisplay)


def test_a_pipe_gets_plain_lines_even_when_colours_are_forced(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    assert isinstance(make_display(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")), PlainDisplay)


def test_a_terminal_that_cannot_draw_gets_plain_lines(terminal, monkeypatch):
    terminal.encoding = "ascii"
    assert isinstance(make_display(terminal), PlainDisplay)
    terminal.encoding = "utf-8"
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(make_display(terminal), PlainDisplay)


# Plain lines


def test_an_update_is_one_plain_line():
    display, stream, clock = plain_run()
    display.start("addition", {}, 10)
    clock.now += 6
    display.step_done(1, METRICS)
    # one update took 6 s and nine are left: 54 s, said as 50
    assert stream.getvalue().splitlines()[1:] == [
        "update  1/10  reward 0.412  kept 8/12  entropy 0.610  clipped 3.1%  length 12.3  tok/s 812  time 6.2 s"
        "  about 50 s left"
    ]


def test_evaluation_before_training_does_not_slow_the_estimate():
    display, stream, clock = plain_run()
    display.start("addition", {}, 10)
    clock.now += 500
    display.step_done(0, {"heldout_accuracy": 0.2})
    clock.now += 6
    display.step_done(1, {})
    assert stream.getvalue().splitlines()[1:] == ["update  0/10  held-out 0.200", "update  1/10  about 50 s left"]


def test_a_supervised_update_is_a_line_of_its_own_numbers():
    display, stream, clock = plain_run()
    display.start("learning", {}, 10, SUPERVISED)
    clock.now += 6
    display.step_done(1, LEARNED)
    assert stream.getvalue().splitlines()[1:] == [
        "update  1/10  loss 2.31  perplexity 10.1  lr 1.00e-03  tok/s 4.3k  epoch 1  about 50 s left"
    ]


def test_a_log_of_many_quick_updates_gets_a_line_in_2_seconds_the_measured_and_the_last_one():
    display, stream, clock = plain_run()
    display.start("learning", {}, 10, SUPERVISED)
    display.step_done(0, {"heldout_loss": 5.5})
    for step in range(1, 11):
        clock.now += 0.5  # so that update 4 comes 2 s after the first line
        display.step_done(step, {"loss": 1.0} | ({"heldout_loss": 2.0} if step == 5 else {}))
    shown = [re.match(r"update +(\d+)/10", line)[1] for line in stream.getvalue().splitlines()[1:]]
    assert shown == ["0", "4", "5", "9", "10"]
    assert stream.getvalue().splitlines()[3].startswith("update  5/10  loss 1.00  held-out 2.00")


def test_between_updates_a_log_shows_life_at_most_every_30_seconds():
    display, stream, clock = plain_run()
    display.start("addition", {}, 10)
    for _ in range(95):
        clock.now += 1
        display.collecting(PROGRESS)
    lines = stream.getvalue().splitlines()[1:]
    # 95 s hold three spans of 30 s; 3456 tokens in 4 s are 864 per second
    assert lines == ["update  3/10  collecting: 5 of 8 groups, round 2 of 10, 118 of 128 answers, 864 tok/s"] * 3


@pytest.mark.parametrize(
    ("report", "line"),
    [("updating", "training: 3 of 8 passes"), ("evaluating", "evaluating: 3 of 8 answers")],
)
def test_long_training_and_evaluation_show_life_too(report, line):
    display, stream, clock = plain_run()
    getattr(display, report)(3, 8)
    clock.now += 30
    getattr(display, report)(3, 8)
    assert stream.getvalue() == f"{line}\n"


def test_a_run_of_unknown_length_counts_up():
    display, stream, clock = plain_run()
    display.start("addition", {}, None)
    clock.now += 6
    display.step_done(1, {"candidate_reward_mean": 0.5})
    assert stream.getvalue().splitlines()[1:] == ["update 1  reward 0.500"]


def test_a_log_has_no_control_characters():
    display, stream, _ = plain_run()
    display.start("addition", FACTS, 1)
    display.step_done(1, METRICS)
    display.finish(OUTCOME)
    assert [char for char in stream.getvalue() if not char.isprintable() and char != "\n"] == []


def test_a_log_of_another_encoding_is_written_with_question_marks():
    raw = io.BytesIO()
    display, _, _ = plain_run(io.TextIOWrapper(raw, encoding="ascii"))
    display.notice("数 done")
    assert raw.getvalue() == b"? done\n"


def test_a_reader_that_goes_away_does_not_stop_the_run():
    reader, writer = os.pipe()
    os.close(reader)
    survived = False
    with suppress(BrokenPipeError), open(writer, "w") as stream:  # closing fails over what is in the buffer
        display, _, _ = plain_run(stream)
        display.notice("one")
        display.notice("two")
        survived = True
    assert survived


# The live screen


def test_the_screen_shows_updates_collection_and_curves():
    display, clock = live_display()
    display._live.start = lambda: None
    display.start("addition", FACTS, 4)
    for step in (1, 2):
        clock.now += 10
        display.step_done(step, {**METRICS, "heldout_accuracy": step / 4})
    clock.now += 4
    display.collecting(PROGRESS)
    lines = [re.sub(r" {2,}", "  ", line).strip() for line in screen(display).splitlines()]
    # two updates of 10 s, 4 s into the third of four: 6 + 10 = 16 s left, said as 20
    assert any(line.endswith("2 of 4 · about 20 s left · 24 s so far") for line in lines)
    assert any(line.endswith("5 of 8 groups · round 2 of 10 · 11 tried") for line in lines)
    assert any(line.startswith("answers") and "118 of 128 · 864 tok/s" in line for line in lines)
    assert any(line.startswith("held-out  ▃") and line.endswith("0.500 · from 0.250") for line in lines)
    assert "update  reward  held-out  kept  entropy  clipped  length  tok/s  time" in lines
    assert "2  0.412  0.500  8 of 12  0.610  3.1%  12.3  812  6.2 s" in lines


def test_a_resumed_run_starts_where_it_stands():
    display, _ = live_display()
    display._live.start = lambda: None
    display.start("addition", FACTS, 4)
    display.collecting(PROGRESS)  # for update 3
    assert "2 of 4" in screen(display)


def test_a_value_that_is_not_finite_leaves_a_gap_and_the_screen_whole():
    display, _ = live_display()
    display.step_done(1, METRICS)
    display.step_done(2, {**METRICS, "candidate_reward_mean": float("nan"), "entropy": float("inf")})
    assert re.search(r"^ +2 +- ", screen(display), re.MULTILINE)


def test_training_and_evaluation_take_the_place_of_collection():
    display, _ = live_display()
    display.updating(3, 8)
    assert "3 of 8 passes" in screen(display)
    display.evaluating(40, 100)
    assert "40 of 100 answers" in screen(display)
    assert "passes" not in screen(display)


def test_nothing_jumps_when_the_activity_changes():
    display, _ = live_display()
    display.step_done(1, METRICS)
    heights = [len(screen(display).splitlines())]
    for report in (lambda: display.collecting(PROGRESS), lambda: display.updating(1, 2)):
        report()
        heights.append(len(screen(display).splitlines()))
    assert len(set(heights)) == 1


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 200])
def test_every_line_fits_the_terminal(width):
    display, _ = live_display(width=width)
    display._live.start = lambda: None
    display.start("a long title for the narrowest of terminals", {**FACTS, "run": "runs/" + "x" * 80}, 1000)
    for step in range(1, 12):
        display.step_done(step, {**METRICS, "heldout_accuracy": 0.5, "dapo_generated_groups": 12345})
    display.collecting(PROGRESS)
    assert max(len(line) for line in screen(display, width=width).splitlines()) <= width


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (60, "update reward held-out kept length time"),
        (100, "update reward held-out kept entropy clipped length tok/s time"),
    ],
)
def test_a_narrow_terminal_gets_fewer_columns(width, columns):
    display, _ = live_display(width=width)
    display.step_done(1, METRICS)
    assert columns in [" ".join(line.split()) for line in screen(display, width=width).splitlines()]


def test_the_table_shows_the_last_updates_and_fewer_on_a_low_terminal():
    def steps(height):
        display, _ = live_display(height=height)
        for step in range(1, 21):
            display.step_done(step, METRICS)
        found = re.findall(r"^ *(\d+) +0\.412", screen(display, height=height), re.MULTILINE)
        return [int(step) for step in found]

    assert steps(40) == [13, 14, 15, 16, 17, 18, 19, 20]
    assert steps(18) == [18, 19, 20]  # 15 lines are the rest of the screen
    assert steps(5) == [20]


def test_the_terminal_gets_its_cursor_back_when_a_run_fails(terminal):
    display = make_display(terminal)

    def failing_run():
        with display:
            display.start("addition", FACTS, 4)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing_run()
    written = terminal.getvalue()
    assert "\x1b[?25l" in written  # hidden while drawing
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l")


def test_the_live_screen_draws_by_itself_on_a_real_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    leader, follower = pty.openpty()
    with open(follower, "w", encoding="utf-8") as stream, make_display(stream) as display:
        display.start("addition", FACTS, 4)
        display.updating(7, 8)
        time.sleep(0.6)  # two frames
    drawn = os.read(leader, 65536).decode()
    os.close(leader)
    assert "7 of 8 passes" in drawn


# The end


def test_before_and_after_stand_side_by_side():
    lines = [line.rstrip() for line in screen(before_after_table(OUTCOME)).splitlines()]
    assert lines == [
        "",
        "                    before   after   change",
        "held-out accuracy    0.203   0.812   +0.609",
        "tokens per answer     14.2     6.0     -8.2",
        "",
        "model     runs/x/final",
        "metrics   runs/x/metrics.jsonl",
    ]


def test_what_was_not_measured_is_a_dash():
    row = BeforeAfter("held-out accuracy", "heldout_accuracy", None, 0.5)
    assert "held-out accuracy        -   0.500        -" in screen(before_after_table(Outcome([row])))


def test_the_screen_of_a_supervised_run_has_its_own_curves_and_columns():
    display, _ = live_display()
    display.start("learning", {}, 10, SUPERVISED)
    display.step_done(0, {"heldout_loss": 5.5})
    display.step_done(1, LEARNED)
    display.step_done(2, {**LEARNED, "loss": 1.25, "heldout_loss": 3.0})
    lines = [" ".join(line.split()) for line in screen(display).splitlines()]
    assert "update loss held-out perplexity lr tok/s epoch" in lines
    assert "2 1.25 3.00 10.1 1.00e-03 4.3k 1" in lines
    assert any(line.startswith("loss ") and line.endswith("1.25 · from 2.31") for line in lines)
    assert any(line.startswith("held-out ") and line.endswith("3.00 · from 5.50") for line in lines)
    assert not any("kept" in line or "reward" in line for line in lines)
