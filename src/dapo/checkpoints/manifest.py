"""What a checkpoint folder must hold, with checksums: how a damaged one is told from a whole one."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

MANIFEST = "manifest.json"


def write_manifest(folder: Path) -> None:
    """List every file under `folder` with its size and SHA-256."""
    files = {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": _sha256(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    # No line end after the last brace: a file that lost its last byte shall not be readable.
    (folder / MANIFEST).write_text(json.dumps({"files": files}, indent=1), encoding="utf-8")


def damage(folder: Path) -> str | None:
    """What is wrong with a folder that has a manifest, in a few words; None when every file is as it was written."""
    try:
        files = json.loads((folder / MANIFEST).read_bytes())["files"]
        for name, listed in files.items():
            path = folder / name
            if not path.is_file():
                return f"{name} is missing"
            if path.stat().st_size != listed["bytes"]:
                return f"{name} has {path.stat().st_size} bytes instead of {listed['bytes']}"
            if _sha256(path) != listed["sha256"]:
                return f"{name} does not match its checksum"
    except FileNotFoundError:
        return f"{MANIFEST} is missing"
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return f"{MANIFEST} is not readable"
    except OSError as error:
        return error.strerror or str(error)
    return None if files else f"{MANIFEST} lists nothing"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
