"""What the built-in engine adds to the contract: its slots and its cache of keys and values."""

from __future__ import annotations

import pytest
import torch

from dapo.errors import ConfigError, RolloutError
from dapo.rollout import kv_cache, torch_engine
from dapo.rollout.engine import Request
from dapo.rollout.scheduler import RunningSequence, Scheduler, sequence_uniforms
from dapo.rollout.settings import Sampling
from dapo.rollout.torch_engine import TorchEngine


def never_ends():
    table = torch.zeros(64, 64)
    table[:, 0] = -1e4
    return table


def engine(model, *, slots=64, gb=1.0):
    return TorchEngine(model, max_num_seqs=slots, kv_cache_gb=gb)


def test_answers_longer_than_the_cache_s_steps_score_like_a_fresh_pass(
    load_tiny, generate, draw, fresh_logprobs, monkeypatch
):
    """The cache grows 16 positions at a time here: an answer of 60 tokens outgrows it more than once."""
    monkeypatch.setattr(kv_cache, "GROWTH", 16)
    model = load_tiny()
    model.stop_ids = frozenset()
    for rollout in generate(engine(model), [draw(0, "ab"), draw(1, "a longer prompt: ")], n=2, new=60):
        for completion in rollout.completions:
            assert len(completion.tokens) == 60
            fresh = fresh_logprobs(model, rollout.draw.prompt.tokens, completion.tokens)
            torch.testing.assert_close(torch.tensor(completion.logprobs), fresh, atol=1e-4, rtol=0)


@pytest.mark.parametrize("cost", [0, 15, 10_000])
def test_slots_whose_attention_is_computed_together_do_not_see_each_other(
    load_tiny, generate, draw, fresh_logprobs, monkeypatch, cost
):
    """Prompts of 1, 20 and 5 tokens side by side: in calls for equal lengths only, for near ones, and in one call."""
    monkeypatch.setattr(kv_cache, "CALL_COST", cost)
    model = load_tiny()
    for rollout in generate(engine(model, slots=5), [draw(0, "a"), draw(1, "b" * 20), draw(2, "c" * 5)], n=3):
        for completion in rollout.completions:
            fresh = fresh_logprobs(model, rollout.draw.prompt.tokens, completion.tokens)
            torch.testing.assert_close(torch.tensor(completion.logprobs), fresh, atol=1e-4, rtol=0)


def test_neighbours_share_a_call_while_what_they_read_for_nothing_costs_less_than_another_call():
    """10, 10 and 12 together read 3 x 12 = 36 keys, apart 20 + 12 = 32: worth it at a cost of 4, not of 3."""
    for cost, blocks in ((4, [(0, 3)]), (3, [(0, 2), (2, 3)]), (0, [(0, 2), (2, 3)])):
        assert kv_cache.blocks_of([10, 10, 12], cost) == blocks


def test_prompts_are_computed_in_passes_of_bounded_size(load_tiny, generate, draw, monkeypatch):
    """9 prompts of 10 tokens, 25 tokens a pass: 2 + 2 + 2 + 2 + 1. One of 30 goes alone, and once."""
    sizes: list[int] = []
    monkeypatch.setattr(torch_engine, "PREFILL_TOKENS", 25)
    model = load_tiny()
    plain = model.hidden
    monkeypatch.setattr(
        model, "hidden", lambda tokens, *rest: (sizes.append(len(tokens)), plain(tokens, *rest))[1], raising=True
    )
    draws = [draw(number, "a" * 9 + "abcdefghi"[number]) for number in range(9)]
    generate(engine(model), [*draws, draw(9, "b" * 30), draw(10, "b" * 30)], new=1)
    assert sizes == [20, 20, 20, 20, 10, 30]


@pytest.mark.parametrize(("setting", "side_by_side"), [(1, 1), (3, 3), (64, 12)])
def test_max_num_seqs_answers_run_side_by_side(table_model, generate, draw, monkeypatch, setting, side_by_side):
    """6 prompts of 2 answers, all of 4 tokens."""
    assert widest(table_model, generate, draw, monkeypatch, slots=setting) == side_by_side


def test_kv_cache_gb_limits_how_many_run_side_by_side(table_model, generate, draw, monkeypatch):
    """Per token 2 x 1 layer x 2 heads x 16 x 4 bytes = 256; a sequence of 1 + 4 tokens needs 1280 bytes.

    4000 bytes hold 3 of them, 1280 exactly one, and 1279 none.
    """
    assert widest(table_model, generate, draw, monkeypatch, gb=4000 / 2**30) == 3
    assert widest(table_model, generate, draw, monkeypatch, gb=1280 / 2**30) == 1
    with pytest.raises(ConfigError, match=r"kv_cache_gb is .* but one sequence of 5 tokens needs") as refused:
        widest(table_model, generate, draw, monkeypatch, gb=1279 / 2**30)
    assert "raise kv_cache_gb" in refused.value.fix


def widest(table_model, generate, draw, monkeypatch, **limits):
    """Most tokens of one decoding pass."""
    sizes: list[int] = []
    model = table_model(never_ends())
    plain = kv_cache.DecodeAttention.__init__
    monkeypatch.setattr(
        torch_engine.DecodeAttention,
        "__init__",
        lambda self, cache, running: (sizes.append(running), plain(self, cache, running))[1],
    )
    generate(engine(model, **limits), [draw(number, "a") for number in range(6)], n=2, new=4)
    monkeypatch.undo()
    return max(sizes)


def test_a_prompt_that_fills_the_context_is_an_error_that_names_its_row(load_tiny, generate, draw):
    """B78: 128 tokens of context and a prompt of 128 leave none."""
    model = load_tiny()
    assert len(generate(engine(model), [draw(0, "a" * 127)], new=5)[0].completions[0].tokens) == 1
    with pytest.raises(ConfigError, match="prompt 41 has 128 tokens") as refused:
        generate(engine(model), [draw(0, "a" * 128, index=41)], new=5)
    assert "max_prompt_tokens" in refused.value.fix


def test_the_cache_is_not_kept_between_rollouts(load_tiny, generate, draw):
    """B83: nothing that old weights computed can be found by new ones."""
    model = load_tiny()
    worker = engine(model)
    generate(worker, [draw(0, "abc")])
    assert worker._work is None


def test_weights_that_change_while_answers_are_written_must_be_loaded(load_tiny, draw):
    """B83: their keys and values would be mixed with the new ones'."""
    worker = engine(load_tiny())
    worker.submit([Request(draw(0, "abc"), 0, Sampling(n=1, max_new_tokens=9), 0)])
    worker.step()
    with torch.no_grad():
        worker.model.module.model.norm.weight.mul_(2)
    with pytest.raises(RolloutError, match="weights have changed while answers are being written"):
        worker.step()
    worker.load(1)
    worker.step()


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")
def test_no_product_of_a_rollout_lays_its_weight_out_anew(load_tiny, generate, draw, monkeypatch):
    """Between the first token and the last the weights stay the same, so one copy serves all products."""
    anew = []
    plain = torch.nn.functional.linear
    monkeypatch.setattr(torch.nn.functional, "linear", lambda *given: (anew.append(given), plain(*given))[1])
    model = load_tiny()
    anew.clear()  # loading compares the model with itself
    generate(engine(model), [draw(0, "abc"), draw(1, "de")], n=2)
    assert not anew
    model.logits(torch.zeros(1, model.head.shape[1]))
    assert len(anew) == 1  # what is counted is what the layers call


def test_a_free_slot_goes_to_the_sequence_that_waits_longest(draw):
    """0, 1, 2 run in slots 0, 1, 2; when 0 and 1 end, 2 moves to slot 0, and 3 and 4 start behind it."""
    sampling = Sampling(n=5, max_new_tokens=9)
    sequences = [RunningSequence.of(Request(draw(0, "a"), sample, sampling, 0), 9) for sample in range(5)]
    scheduler = Scheduler()
    scheduler.waiting.extend(sequences)
    assert scheduler.admit(3, lambda sequence: True) == sequences[:3]
    assert scheduler.admit(3, lambda sequence: True) == []
    sequences[0].stop_reason = sequences[1].stop_reason = "stop"
    slots = {0: sequences[0], 1: sequences[1], 2: sequences[2]}
    assert set(scheduler.release_finished(lambda old, new: slots.update({new: slots[old]}))) == set(sequences[:2])
    assert scheduler.running == [slots[0]] == [sequences[2]]
    assert scheduler.waiting[0] is sequences[3]
    assert scheduler.admit(3, lambda sequence: True) == sequences[3:]
    assert scheduler.running == sequences[2:]
    assert scheduler.unfinished


def test_random_numbers_of_an_answer_come_from_seed_draw_and_sample_alone():
    """B77: changing any one of the three gives other numbers; the same three give the same."""

    def numbers(*key):
        return tuple(sequence_uniforms(*key).random(4))

    assert numbers(3, 5, 1) == numbers(3, 5, 1)
    assert len({numbers(3, 5, 1), numbers(4, 5, 1), numbers(3, 6, 1), numbers(3, 5, 2), numbers(5, 3, 1)}) == 5


def test_blocks_are_cut_alike_by_a_rule_that_looks_at_every_slot_once():
    """The rule as it reads: neighbours join while the keys read for nothing cost less than a call."""

    def plainly(lengths, cost):
        blocks = []
        for slot, length in enumerate(lengths):
            start, stop = blocks[-1] if blocks else (slot, slot)
            longest = max(lengths[start:stop], default=0)
            if blocks and (slot + 1 - start) * max(longest, length) <= (stop - start) * longest + length + cost:
                blocks[-1] = start, slot + 1
            else:
                blocks.append((slot, slot + 1))
        return blocks

    lengths = [int(number) for number in torch.randint(1, 300, (200,), generator=torch.Generator().manual_seed(0))]
    for cost in (0, 50, 400, 5000, 100_000):
        assert kv_cache.blocks_of(lengths, cost) == plainly(lengths, cost)


def test_cutting_blocks_looks_at_every_slot_a_bounded_number_of_times():
    """2048 slots in one block; a rule that looks back over the block for each slot would compare 2 million times."""

    class Counted(int):
        compared = 0

        def __gt__(self, other):
            Counted.compared += 1
            return int(self) > int(other)

    assert kv_cache.blocks_of([Counted(7) for _ in range(2048)], 100_000) == [(0, 2048)]
    assert Counted.compared <= 3 * 2048


def test_prompts_that_leave_less_room_than_an_answer_may_have_are_counted(load_tiny, draw):
    """A context of 128: prompts of 100, 122 and 124 tokens leave 28, 6 and 4."""
    prompts = [draw(number, "a" * length).prompt for number, length in enumerate((100, 122, 124))]
    assert engine(load_tiny()).check(prompts, 28) == [
        "2 of 3 prompts leave less room than max_new_tokens 28 in the model's context of 128: "
        "their answers are cut earlier, the shortest at 4 tokens"
    ]
    assert engine(load_tiny()).check(prompts[:1], 28) == []


LONGROPE = {
    "rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 32,
    "short_factor": [1.0] * 4, "long_factor": [2.0] * 4,
}  # fmt: skip
FROM_32 = {"original_max_position_embeddings": 32}  # overrules the one among the parameters
LLAMA_3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 10000.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip
BEYOND: dict[str, tuple[str, dict, int, str]] = {
    "LongRoPE": ("Phi3", {"rope_parameters": LONGROPE, **FROM_32}, 32, "positions are encoded otherwise"),
    "a window": ("Mistral", {"sliding_window": 16}, 16, "its sliding window"),
    "a window in some layers": ("Gemma3Text", {"head_dim": 8, "sliding_window": 16}, 16, "its sliding window"),
    "a window switched on": ("Qwen2", {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 0},
                             16, "its sliding window"),
    "a window of new code": ("Olmo3", {"sliding_window": 16}, 16, "its sliding window"),
    "a window beside dropout": ("Starcoder2", {"sliding_window": 16}, 16, "its sliding window"),
    "no window, switched off": ("Qwen2", {"use_sliding_window": False, "sliding_window": 16}, 128, ""),
    "factors that never change": ("Llama", {"rope_parameters": LLAMA_3}, 128, ""),
}  # fmt: skip


@pytest.mark.parametrize("kind", BEYOND)
def test_a_sequence_beyond_what_packed_attention_reproduces_is_refused_at_the_start(
    load_checkpoint, family_folder, draw, kind
):
    family, changes, most, reason = BEYOND[kind]
    made = engine(load_checkpoint(family_folder(family, **changes)))
    assert made.model.exact.tokens == most
    assert made.check([draw(0, "a" * (most - 4)).prompt], 4) == []
    if reason:
        with pytest.raises(ConfigError, match=f"computed rightly up to {most}: {reason}") as refused:
            made.check([draw(0, "ab").prompt, draw(1, "a" * (most - 4)).prompt], 5)
        assert refused.value.fix.endswith(f"so that their sum is at most {most}")


def test_below_that_length_answers_beside_longer_ones_score_as_alone(
    load_checkpoint, family_folder, generate, draw, fresh_logprobs
):
    """LongRoPE with factors of 8 from 32 tokens on: up to there rollout and plain pass agree for every length."""
    longrope = {**LONGROPE, "long_factor": [8.0] * 4}
    model = load_checkpoint(family_folder("Phi3", rope_parameters=longrope, **FROM_32))
    draws = [draw(0, "ab"), draw(1, "abcdefghijklmnopqrstuvwxyz")]
    for rollout in generate(engine(model), draws, n=2, new=6):
        for completion in rollout.completions:
            with torch.no_grad():
                plain = fresh_logprobs(model, rollout.draw.prompt.tokens, completion.tokens)
            assert torch.tensor(completion.logprobs) == pytest.approx(plain, abs=1e-5)
