"""Measurements kept between runs, by device, versions and problem: one JSON file each."""

import hashlib
from pathlib import Path
from typing import Any

import msgspec
from filelock import FileLock
from platformdirs import user_cache_dir

from jaxsparse.tune.costs import Costs


def default_folder() -> Path:
    """Where measurements are kept when no folder is named: the user's cache."""
    return Path(user_cache_dir("jaxsparse"), "tune")


class CostCache:
    """Costs by key, in `folder`; None keeps nothing. Safe with several processes at once."""

    def __init__(self, folder: Path | None):
        self.folder = folder

    def get(self, key: dict[str, Any]) -> Costs | None:
        """What was kept under `key` (JSON types), or None; a file that does not read counts as
        nothing kept.
        """
        if self.folder is None or not self._file(key).is_file():
            return None
        with self._lock(key):
            try:
                return msgspec.json.decode(self._file(key).read_bytes(), type=Kept).costs
            except msgspec.DecodeError:
                return None

    def put(self, key: dict[str, Any], costs: Costs) -> None:
        """Keep `costs` under `key`."""
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._lock(key):
            self._file(key).write_bytes(msgspec.json.encode(Kept(key, costs)))

    def _file(self, key: dict[str, Any]) -> Path:
        assert self.folder is not None
        digest = hashlib.sha256(msgspec.json.encode(key, order="deterministic")).hexdigest()
        return self.folder / f"{digest[:32]}.json"

    def _lock(self, key: dict[str, Any]) -> FileLock:
        return FileLock(f"{self._file(key)}.lock", timeout=60)


class Kept(msgspec.Struct, frozen=True):
    """A file's content: the key in clear, so that a reader sees what was measured."""

    key: dict[str, Any]
    costs: Costs
