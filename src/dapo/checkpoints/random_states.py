"""The process's random generators, as JSON.

Answers and the order of the data have generators of their own, which depend on the seed and a number alone. These
here are for everything else that may draw: dropout, or a library.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

from dapo.errors import CheckpointError
from dapo.wording import first_line


def seed_random_states(seed: int) -> None:
    """Start every generator of the process at `seed`."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def random_states() -> dict[str, Any]:
    """The state of every generator: Python's, NumPy's, torch's and, where there are GPUs, theirs."""
    version, numbers, gauss = random.getstate()
    kind, keys, place, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "python": [version, list(numbers), gauss],
        "numpy": [str(kind), keys.tolist(), int(place), int(has_gauss), float(cached)],  # type: ignore[union-attr]
        "torch": _to_text(torch.get_rng_state()),
        "cuda": [_to_text(state) for state in torch.cuda.get_rng_state_all()] if torch.cuda.is_available() else [],
    }


def restore_random_states(states: dict[str, Any]) -> None:
    """Undo everything that was drawn since `random_states`. GPUs that are not there now are left out.

    Raises CheckpointError for states that a generator does not take.
    """
    try:
        version, numbers, gauss = states["python"]
        random.setstate((version, tuple(numbers), gauss))
        kind, keys, *rest = states["numpy"]
        np.random.set_state((kind, np.array(keys, dtype=np.uint32), *rest))
        torch.set_rng_state(_from_text(states["torch"]))
        present = torch.cuda.device_count() if torch.cuda.is_available() else 0
        for device, state in enumerate(states["cuda"][:present]):
            torch.cuda.set_rng_state(_from_text(state), device)
    except Exception as error:  # each generator refuses in its own way
        raise CheckpointError(
            f"the checkpoint's random states cannot be restored: {first_line(error)}",
            fix="remove this checkpoint, so that the one before is used",
        ) from error


def _to_text(state: torch.Tensor) -> str:
    return bytes(state.tolist()).hex()


def _from_text(text: str) -> torch.Tensor:
    return torch.tensor(list(bytes.fromhex(text)), dtype=torch.uint8)
