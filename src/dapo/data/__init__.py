"""From a data file, hub id or procedural task to prompts that are ready for the model.

    dataset_path ──read_rows──> RawRow ──┐
    dataset_loader_fn ───────────────────┼──load_rows──> Row ──encode_prompts──> Prompt ──PromptStream──> Draw
    task:... ──task_rows─────────────────┘                                       └─encode_demonstrations─> Demonstration

`load_rows` needs no model, so everything that is wrong with the data is said before one is loaded.
"""

from dapo.data.prompts import PromptSet, encode_prompts
from dapo.data.rows import Row
from dapo.data.settings import DataSettings
from dapo.data.sources import load_rows
from dapo.data.stream import Draw, PromptStream

__all__ = ["DataSettings", "Draw", "PromptSet", "PromptStream", "Row", "encode_prompts", "load_rows"]
