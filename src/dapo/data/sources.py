"""From the settings to checked rows, whatever kind of source they name."""

from __future__ import annotations

from dapo.data.loader_function import rows_of_loader
from dapo.data.readers import read_rows
from dapo.data.rows import Row, check_row
from dapo.data.settings import DataSettings
from dapo.data.tasks import is_task, task_rows


def load_rows(settings: DataSettings, *, model_hub: str = "hf") -> list[Row]:
    """Every row of the data, checked, in the order of the source. Needs no model or tokenizer.

    Raises DataError when the source cannot be read, has no rows, or holds a row without a usable prompt.
    """
    path, loader = settings.dataset_path, settings.dataset_loader_fn
    if loader is not None:
        source, raw = loader, rows_of_loader(loader, path)
    else:
        assert path is not None, "DataSettings refuses to be made without any source"
        if is_task(path):
            return task_rows(path)
        source, raw = path, read_rows(path, model_hub=model_hub)
    return [check_row(row, index, source) for index, row in enumerate(raw)]
