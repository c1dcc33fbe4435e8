"""Data sets of the `datasets` library: folders it saved, and repositories on a hub."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from dapo.errors import DataError
from dapo.places import hub_has, nearest_place
from dapo.wording import first_line

MODEL_HUBS = ("hf", "modelscope")

_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?(:[^:/]*(:.+)?)?")


def load_saved_folder(path: str, folder: Path) -> list[dict[str, Any]]:
    """The rows of a folder written by `save_to_disk`; of several splits in it, `train`."""
    if not (folder / "dataset_info.json").is_file() and not (folder / "dataset_dict.json").is_file():
        raise DataError(
            f"{path} is a folder without a saved data set", fix="name the file in it, or save with save_to_disk"
        )
    import datasets

    try:
        loaded = datasets.load_from_disk(str(folder))
        if isinstance(loaded, datasets.DatasetDict):
            if "train" not in loaded:
                raise DataError(
                    f"{path} has no split train, only {', '.join(loaded)}",
                    fix="name the folder of one split, such as " + str(Path(path) / next(iter(loaded), "test")),
                )
            loaded = loaded["train"]
        return loaded.to_list()
    except DataError:
        raise
    except Exception as error:  # a damaged folder can fail anywhere inside the library
        raise DataError(
            f"{path} cannot be read as a saved data set: {first_line(error)}", fix="save it again with save_to_disk"
        ) from error


def load_from_hub(name: str, model_hub: str) -> list[dict[str, Any]]:
    """The rows of `repo[:config[:split]]` on the hub; the default config, and the split `train`."""
    if not _HUB_ID.fullmatch(name):
        raise DataError(
            f"dataset_path {name!r} is neither an existing file nor a hub id",
            fix="name a file, or a data set as repo[:config[:split]]",
        )
    repo, config, split = (*name.split(":", 2), "", "")[:3]
    reason = None if model_hub == "modelscope" or _was_loaded(repo) else hub_has(repo, "dataset")
    if reason is not None:
        guess = nearest_place(name)
        raise DataError(
            f"{name} is no file or folder here, and as a hub id {reason}",
            fix=(f"did you mean {guess}? " if guess else "") + "check the name, the network and your access",
        )
    fetch = _fetch_from_modelscope if model_hub == "modelscope" else _fetch_from_hugging_face
    try:
        return fetch(repo, config or None, split or "train")
    except ImportError as error:
        raise DataError(f"model_hub modelscope needs a package: {error}", fix="pip install modelscope") from error
    except Exception as error:  # network, access rights, unknown names: the hub's own words say which
        raise DataError(
            f"{name} is no local file and could not be loaded from the hub {model_hub}: {first_line(error)}",
            fix="check the name, the network and your access, or give a local file",
        ) from error


def _was_loaded(repo: str) -> bool:
    """Whether the library has rows of it here, from an earlier time."""
    import datasets

    return os.path.isdir(Path(datasets.config.HF_DATASETS_CACHE) / repo.replace("/", "___"))


def _fetch_from_hugging_face(repo: str, config: str | None, split: str) -> list[dict[str, Any]]:
    import datasets

    return datasets.load_dataset(repo, config, split=split).to_list()


def _fetch_from_modelscope(repo: str, config: str | None, split: str) -> list[dict[str, Any]]:
    from modelscope.msdatasets import MsDataset

    return [dict(row) for row in MsDataset.load(repo, subset_name=config, split=split)]
