"""A run warns of itself by its own metrics."""

from __future__ import annotations

import io

import pytest

# Rows of an even number are constant, the others disagree: half of the generated groups are informative.
ODD_ROWS = """
def reward_fn(record):
    return float(record.metadata["sample_index"]) if record.metadata["prompt_index"] % 2 else 0.0
"""


@pytest.mark.parametrize(("threshold", "warns"), [(0.95, True), (0.0, False)])
def test_a_share_of_informative_groups_below_the_threshold_is_said(run_training, threshold, warns):
    output = io.StringIO()
    run_training(
        prompts=[f"{number}+1=" for number in range(8)],
        reward=ODD_ROWS,
        output=output,
        batch_size=2,
        dapo_gen_batch_size=4,
        alarm_window=1,
        alarm_informative_share=threshold,
    )
    assert ("[alarm_informative_share]" in output.getvalue()) == warns
