"""What is said before the first update: what the run is made of, and how the data look to the model."""

from __future__ import annotations

from collections.abc import Sequence

from dapo.coordination.length import Length, plural
from dapo.coordination.parts import Parts
from dapo.records import Group, Prompt
from dapo.tracking.display import Display

PROMPTS_SHOWN = 3
_WIDTH = 300
"""Characters that are shown of a text, the beginning and the end of it."""


def introduce(parts: Parts, display: Display, length: Length, updates: int, waiting: int) -> None:
    """The heading, and what a person may not have meant. updates: made so far. waiting: groups in the buffer."""
    config = parts.config
    steps = config.training.optimizer_steps(config.collection.batch_size * config.rollout.n_samples)
    groups = f"{config.collection.batch_size} {plural('group', config.collection.batch_size)}"
    facts = {
        "model": f"{config.model.ckpt} ({str(parts.model.dtype).removeprefix('torch.')}, {parts.model.device})",
        "data": f"{config.data.dataset_path or config.data.dataset_loader_fn} ({len(parts.stream)} prompts)",
        "update": f"{groups} of {config.rollout.n_samples}, {steps} optimizer {plural('step', steps)}",
        "length": length.fact(updates, waiting),
        "run folder": str(parts.folder.path),
    }
    display.start(f"training with {parts.algorithm.name}", facts, length.total(updates, waiting))
    warning = length.warning(updates, waiting)
    if warning:
        display.warning(warning)
    given = _clip_settings(parts)
    if steps == 1 and given:
        display.warning(
            f"{' and '.join(given)} cannot act: each update is one optimizer step, taken where every ratio is still 1; "
            "lower mini_bs or gradient_accumulation_steps to make more"
        )


def show_prompts(prompts: Sequence[Prompt], display: Display) -> None:
    """The first prompts as the model reads them, so that a wrong column or template is seen at once."""
    display.notice(f"the first {plural('prompt', len(prompts))} as the model reads them:")
    for prompt in prompts:
        display.notice(f"  {_shown(prompt.text)}{_reference(prompt)}")


def show_graded(group: Group, display: Display) -> None:
    """One answer and its reward: the best of its group."""
    best = max(range(len(group.scores)), key=lambda number: group.scores[number].value)
    completion, score = group.completions[best], group.scores[best]
    prompt = group.prompt
    display.notice("an answer and its reward:")
    display.notice(f"  {_shown(prompt.text)}{_reference(prompt)}")
    cut = ", cut at the limit" if completion.truncated else ""
    display.notice(f"  -> {_shown(completion.text)}, reward {score.value:g}{cut}")


def _clip_settings(parts: Parts) -> list[str]:
    """The settings of the clip that a person chose; the algorithm's own are no news."""
    names = ("dapo_clip_eps_low", "dapo_clip_eps_high", "clip_eps_low", "clip_eps_high", "clip_ratio_c")
    return [name for name in names if getattr(parts.config.algorithm, name) is not None]


def _reference(prompt: Prompt) -> str:
    return "" if prompt.answer is None else f"  (answer: {_shown(str(prompt.answer))})"


def _shown(text: str) -> str:
    """In quotes and on one line, so that blanks and line breaks are seen; the middle of a long text is left out."""
    if len(text) > _WIDTH:
        text = f"{text[: _WIDTH // 2]} ... {text[-_WIDTH // 2 :]}"
    return repr(text)
