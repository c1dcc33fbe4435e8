"""The order in which prompts are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dapo.errors import ConfigError, DataError
from dapo.records import Draw, Prompt

if TYPE_CHECKING:
    import numpy as np


class PromptStream:
    """All prompts once per epoch, each epoch in an order of its own that depends on (seed, epoch) only, or always in
    the order given.

    `position`, the number of prompts drawn so far, is the whole state: a stream made with `position=k` goes on
    exactly like one from which k prompts were drawn.
    """

    def __init__(
        self, prompts: Sequence[Prompt], *, epochs: int | None, seed: int, position: int = 0, shuffle: bool = True
    ) -> None:
        """`epochs`: passes over the prompts, None for no end. `shuffle`: whether each has an order of its own."""
        if not prompts:
            raise DataError("there are no prompts to draw from", fix="check the data")
        if epochs is not None and epochs < 1:
            raise ConfigError(f"epochs is {epochs}", fix="make at least 1 pass over the data")
        if seed < 0:
            raise ConfigError(f"seed is {seed}", fix="use 0 or a positive number")
        total = None if epochs is None else epochs * len(prompts)
        if position < 0 or (total is not None and position > total):
            raise DataError(
                f"data position {position} is outside the {'endless' if total is None else total} draws of this run",
                fix="resume with the data and epochs of the run that was saved, or more epochs",
            )
        self._prompts = prompts
        self._seed = seed
        self._shuffle = shuffle
        self._total = total
        self._position = position
        self._order: tuple[int, np.ndarray] | None = None

    def __len__(self) -> int:
        """Prompts of one epoch."""
        return len(self._prompts)

    @property
    def position(self) -> int:
        """Prompts drawn so far."""
        return self._position

    @property
    def epoch(self) -> int:
        """Epoch of the next draw, from 0; the number of epochs once the stream is exhausted."""
        return self._position // len(self._prompts)

    @property
    def remaining(self) -> int | None:
        """Prompts that can still be drawn; None without end."""
        return None if self._total is None else self._total - self._position

    @property
    def exhausted(self) -> bool:
        """True when every epoch is drawn."""
        return self.remaining == 0

    def first(self, n: int) -> Sequence[Prompt]:
        """The first prompts as the data have them; draws nothing."""
        return self._prompts[:n]

    def take(self, n: int) -> list[Draw]:
        """The next n draws, over an epoch border if need be; fewer at the very end, then none."""
        count = n if self.remaining is None else min(n, self.remaining)
        draws = [Draw(number, self._prompt(number)) for number in range(self._position, self._position + count)]
        self._position += len(draws)
        return draws

    def give_back(self, n: int) -> None:
        """Undo the last n draws: they are drawn again next, under the same ids."""
        self._position -= n

    def _prompt(self, number: int) -> Prompt:
        epoch, place = divmod(number, len(self._prompts))
        if not self._shuffle:
            return self._prompts[place]
        if self._order is None or self._order[0] != epoch:
            import numpy as np

            # RandomState's numbers are frozen for good by NumPy, so a run resumes alike under a later version.
            generator = np.random.RandomState(np.random.MT19937(np.random.SeedSequence([self._seed, epoch])))
            self._order = epoch, generator.permutation(len(self._prompts))
        return self._prompts[self._order[1][place]]
