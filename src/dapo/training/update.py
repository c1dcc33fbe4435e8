"""One update: a batch of judged groups in, new weights and what happened out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from dapo.algorithms.losses import TokenLosses, bounded_ratio, step_size, token_log_ratio
from dapo.algorithms.policy_loss import policy_loss_sum
from dapo.algorithms.settings import Algorithm
from dapo.errors import TrainingError
from dapo.models.language_model import LanguageModel
from dapo.models.policy import PackedPolicy
from dapo.models.saved_state import read_optimizer, write_trained
from dapo.records import TrainedTokens
from dapo.training.batch import Answer
from dapo.training.optimizer import MasterAdamW
from dapo.training.packing import PackedPass, pack
from dapo.training.plan import AnswerSize, Pass, plan_passes
from dapo.training.ranks import Ranks
from dapo.training.settings import TrainingSettings


@dataclass(frozen=True)
class SkippedStep:
    """An optimizer step that was not made, since its loss or gradient was not finite."""

    loss: float
    grad_norm: float
    rows: tuple[int, ...]
    """Rows of the data whose prompts were in it."""

    def __str__(self) -> str:
        rows = ", ".join(map(str, self.rows))
        return f"loss {self.loss}, gradient norm {self.grad_norm}, prompts of rows {rows}"


@dataclass(frozen=True)
class UpdateStats:
    """What an update did. Token means run over the response tokens of all its optimizer steps, on all ranks; they
    and the means over steps are NaN when every step was skipped."""

    loss: float
    """Mean over the optimizer steps; each step's own is divided once by its tokens or answers."""
    grad_norm: float
    """Mean over the optimizer steps, before clipping."""
    optimizer_steps: int
    tokens: int
    """Response tokens trained."""
    ratio_mean: float
    ratio_std: float
    clipped_lower: float
    """Share of tokens."""
    clipped_upper: float
    up_clipped_prob: float | None
    """Mean probability, when they were drawn, of the tokens that the upper bound held; None when it held none."""
    entropy: float
    """Nats, of the full distribution."""
    rollout_logprob: float
    train_logprob: float
    logprob_gap: float
    """Mean of training minus rollout log-probability, never bounded."""
    logprob_abs_gap: float
    skipped: tuple[SkippedStep, ...]
    trained: tuple[TrainedTokens | None, ...]
    """One entry per answer, in the order given; None for those of skipped steps and of other ranks."""


class Trainer:
    """Owns the optimizer. Weights change in the model that the rollout engine shares."""

    def __init__(
        self,
        model: LanguageModel,
        settings: TrainingSettings,
        algorithm: Algorithm,
        *,
        temperature: float,
        max_new_tokens: int,
        ranks: Ranks | None = None,
    ) -> None:
        self.model = model
        self.policy = PackedPolicy(model)
        self.settings = settings
        self.algorithm = algorithm
        self.temperature = temperature
        self.max_new_tokens = max_new_tokens
        self.ranks = ranks or Ranks()
        self.optimizer = MasterAdamW(model.module.parameters(), settings)
        self.skipped_in_a_row = 0
        """Optimizer steps skipped since the last one that was made."""

    def save(self, folder: Path) -> None:
        """Write weights and optimizer into a checkpoint's folder."""
        write_trained(folder, self.model, self.optimizer.state(self._names))

    def load(self, folder: Path) -> None:
        """Go on with the optimizer of a checkpoint; the model is loaded from there already."""
        self.optimizer.load_state(self._names, read_optimizer(folder))

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor that a rollout engine needs, once, by its Hugging Face name; tied ones by one name."""
        yield from ((name, parameter.detach()) for name, parameter in self.model.module.named_parameters())

    @property
    def _names(self) -> list[str]:
        return [name for name, parameter in self.model.module.named_parameters() if parameter.requires_grad]

    def update(
        self, answers: Sequence[Answer], lr: float, progress: Callable[[int, int], None] = lambda done, total: None
    ) -> UpdateStats:
        """Train on the answers, in order, in ceil(answers / (mini_bs x gradient_accumulation_steps)) steps.

        A step whose loss or gradient is not finite is skipped and leaves weights and optimizer as they were.
        progress: called with optimizer steps done and in all. Raises TrainingError when max_skipped_updates steps
        in a row were skipped.
        """
        per_step = self.settings.mini_bs * self.settings.gradient_accumulation_steps
        steps = [answers[start : start + per_step] for start in range(0, len(answers), per_step)]
        tally = _Tally()
        for number, members in enumerate(steps):
            progress(number, len(steps))
            self._optimizer_step(members, lr, tally)
        progress(len(steps), len(steps))
        return tally.stats(self.ranks)

    def _optimizer_step(self, answers: Sequence[Answer], lr: float, tally: _Tally) -> None:
        divisor = step_size([len(answer.completion.tokens) for answer in answers], self.algorithm.aggregation)
        passes = self._plan(answers)
        loss = 0.0
        for places in passes:
            if places:
                loss += self._pass([answers[place] for place in places], divisor, tally)
                self.optimizer.collect()
        (loss,) = self.ranks.sums([loss])
        norm = self.optimizer.step(lr, self.ranks) if math.isfinite(loss) else math.nan
        if math.isfinite(norm):
            self.skipped_in_a_row = 0
            tally.add_step(loss, norm, [place for places in passes for place in places], len(answers))
        else:
            self.optimizer.drop_gradients()
            rows = tuple(sorted({answer.prompt.index for answer in answers}))
            self._skip(SkippedStep(loss, norm, rows), len(answers), tally)

    def _plan(self, answers: Sequence[Answer]) -> tuple[Pass, ...]:
        """This rank's passes over the answers of one optimizer step."""
        settings = self.settings
        by_rank = plan_passes(
            [AnswerSize.of(answer) for answer in answers],
            mini_bs=settings.mini_bs,
            max_tokens=settings.max_tokens_per_pass,
            ranks=self.ranks.size,
        )
        return by_rank[self.ranks.rank]

    def _skip(self, step: SkippedStep, answers: int, tally: _Tally) -> None:
        tally.skip_step(step, answers)
        self.skipped_in_a_row += 1
        if self.skipped_in_a_row >= self.settings.max_skipped_updates:
            raise TrainingError(
                f"{self.skipped_in_a_row} optimizer steps in a row were not finite; the last: {step}",
                fix="look at these rows; lower lr or grad_clip_norm, or train in float32",
            )

    def _pass(self, answers: Sequence[Answer], divisor: int, tally: _Tally) -> float:
        """Forward and backward of one pass; returns its part of the step's loss."""
        packed = pack(answers, self.algorithm, self.max_new_tokens, self.model.attention)
        logp, entropy = self.score(packed)
        loss_sum, losses = policy_loss_sum(self.algorithm, logp, packed.response)
        loss = loss_sum / divisor
        loss.backward()
        tally.add_tokens(losses, logp.detach(), entropy, packed.response.old_logp, self._ratio(losses, logp, packed))
        tally.add_answers(losses, logp.detach(), [len(answer.completion.tokens) for answer in answers])
        return loss.item()

    @torch.no_grad()
    def _ratio(self, losses: TokenLosses, logp: Tensor, packed: PackedPass) -> Tensor:
        """Of new to rollout policy. The on-policy losses hold another one, which is 1."""
        if self.algorithm.ratio == "rollout":
            return losses.ratio
        return bounded_ratio(token_log_ratio(logp, packed.response.old_logp, "rollout"))

    def score(self, packed: PackedPass) -> tuple[Tensor, Tensor]:
        """Log-probability and entropy, (R,) each, of a pass's response tokens at the sampling temperature."""
        scored: tuple[Tensor, Tensor] = self.policy(
            packed.token_T, packed.packing, packed.predictor_R, packed.target_R, self.temperature
        )
        return scored


class _Tally:
    """Sums over an update, turned into means once."""

    FIELDS = 11

    def __init__(self) -> None:
        self.sums = torch.zeros(self.FIELDS, dtype=torch.float64)
        self.losses: list[float] = []
        self.norms: list[float] = []
        self.skipped: list[SkippedStep] = []
        self._step = torch.zeros_like(self.sums)
        """Sums of the step that is under way: they count once it is made."""
        self.trained: list[TrainedTokens | None] = []
        self._step_trained: list[TrainedTokens] = []
        """This rank's answers of the step that is under way."""

    def add_step(self, loss: float, norm: float, places: Sequence[int], answers: int) -> None:
        """Count the step. places: where this rank's answers stand among the `answers` of all ranks."""
        self.losses.append(loss)
        self.norms.append(norm)
        self.sums += self._step
        mine = dict(zip(places, self._step_trained, strict=True))
        self.trained += [mine.get(place) for place in range(answers)]
        self._begin_step()

    def skip_step(self, step: SkippedStep, answers: int) -> None:
        self.skipped.append(step)
        self.trained += [None] * answers
        self._begin_step()

    def _begin_step(self) -> None:
        self._step.zero_()
        self._step_trained = []

    @torch.no_grad()
    def add_tokens(self, losses: TokenLosses, logp: Tensor, entropy: Tensor, old_logp: Tensor, ratio: Tensor) -> None:
        gap = logp.double() - old_logp.double()
        ratio = ratio.detach().double()
        columns = (
            torch.ones_like(gap),
            ratio,
            ratio.square(),
            losses.clipped_lower,
            losses.clipped_upper,
            torch.where(losses.clipped_upper, old_logp.double().exp(), 0.0),
            entropy,
            old_logp,
            logp,
            gap,
            gap.abs(),
        )
        self._step += torch.stack([column.double().sum() for column in columns]).cpu()

    @torch.no_grad()
    def add_answers(self, losses: TokenLosses, logp: Tensor, lengths: Sequence[int]) -> None:
        """Keep each answer's tokens. lengths: response tokens of the pass's answers, in its order."""
        # Together, so that a GPU is waited for once: a mark is 0 or 1, which float32 holds as well.
        both = torch.stack([logp, losses.clipped_upper.float(), losses.clipped_lower.float()]).cpu()
        for own, upper, lower in zip(*(row.split(list(lengths)) for row in both), strict=True):
            self._step_trained.append(TrainedTokens(tuple(own.tolist()), _places(upper), _places(lower)))

    def stats(self, ranks: Ranks) -> UpdateStats:
        tokens, *sums = ranks.sum(self.sums).tolist()
        means = [value / tokens if tokens else math.nan for value in sums]
        ratio, ratio_square, lower, upper, upper_prob, entropy, old_logp, logp, gap, abs_gap = means
        steps = len(self.losses)
        return UpdateStats(
            loss=sum(self.losses) / steps if steps else math.nan,
            grad_norm=sum(self.norms) / steps if steps else math.nan,
            optimizer_steps=steps,
            tokens=int(tokens),
            ratio_mean=ratio,
            ratio_std=math.sqrt(max(ratio_square - ratio**2, 0.0)),
            clipped_lower=lower,
            clipped_upper=upper,
            up_clipped_prob=upper_prob / upper if upper > 0 else None,
            entropy=entropy,
            rollout_logprob=old_logp,
            train_logprob=logp,
            logprob_gap=gap,
            logprob_abs_gap=abs_gap,
            skipped=tuple(self.skipped),
            trained=tuple(self.trained),
        )


def _places(marks: Tensor) -> tuple[int, ...]:
    return tuple(marks.nonzero()[:, 0].tolist())
