"""Keep `transformers` from drawing progress bars and hints over the run's own display."""

from __future__ import annotations


def hush_transformers() -> None:
    """No progress bars; errors only. What fails is raised and said by us."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
