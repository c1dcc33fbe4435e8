"""What a name of a model or of data may stand for: a place on this machine, or one on a hub."""

from __future__ import annotations

import os
from pathlib import Path

from dapo.wording import first_line, nearest

HUB_SECONDS = 5.0
"""How long a hub may take to say whether it has a name: asked once."""


def is_path(name: str) -> bool:
    """Whether a name can only mean a place here: it begins or ends like a path, has more than one slash, or begins
    with a folder that exists. Anything else may also be a hub id."""
    if name.startswith((".", "/", "~")) or name.endswith("/") or name.count("/") > 1 or "\\" in name:
        return True
    first, slash, _ = name.partition("/")
    return bool(slash) and os.path.isdir(first)


def nearest_place(name: str) -> str | None:
    """The existing place whose path differs from `name` by one misspelt part."""
    try:
        parts = Path(name).expanduser().parts
        here = Path()
        for number, part in enumerate(parts):
            if not (here / part).exists():
                names = sorted(each.name for each in here.iterdir())
                without_suffix = [each for each in names if Path(each).stem == part]
                guess = nearest(part, names, cutoff=0.7) or next(iter(without_suffix), None)
                found = None if guess is None else here.joinpath(guess, *parts[number + 1 :])
                return str(found) if found is not None and found.exists() else None
            here = here / part
    except (OSError, ValueError, RuntimeError):  # no such folder can be named, or it may not be read
        return None
    return None


def hub_has(name: str, kind: str) -> str | None:
    """None when the hub hf, or its cache here, has this `kind` of thing ("model" or "dataset"), else the reason.

    The library below would ask five times, over half a minute, before it says that a name is wrong.
    """
    from huggingface_hub import constants
    from huggingface_hub.utils import build_hf_headers, get_session

    cached = Path(constants.HF_HUB_CACHE) / f"{kind}s--{name.replace('/', '--')}"
    if os.path.isdir(cached):  # unlike Path's own, False for a name that no folder can have
        return None
    if constants.HF_HUB_OFFLINE:
        return "the hub is switched off (HF_HUB_OFFLINE)"
    try:
        answer = get_session().get(
            f"{constants.ENDPOINT}/api/{kind}s/{name}", headers=build_hf_headers(), timeout=HUB_SECONDS
        )
    except Exception as error:  # no network, no such host, a proxy's refusal: many kinds, one meaning
        return f"the hub cannot be reached ({first_line(error)})"
    return None if answer.status_code == 200 else f"the hub does not give it (HTTP {answer.status_code})"
