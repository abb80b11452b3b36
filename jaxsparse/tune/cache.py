"""Measurements kept between runs, by device, versions and problem: one JSON file each."""

import hashlib
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

import msgspec
from platformdirs import user_cache_dir

from jaxsparse.pruned.files import write
from jaxsparse.tune.costs import Costs

#: A file is as long as the costs of a problem are; a longer one was not written here.
MOST_BYTES = 1 << 24


def default_folder() -> Path:
    """Where measurements are kept when no folder is named: the user's cache; below the folder for
    temporary files, in one of the user's own, where there is no home.
    """
    try:
        return Path(user_cache_dir("jaxsparse"), "tune").expanduser()
    except RuntimeError:  # no HOME, and the user has no entry in the password database
        return Path(tempfile.gettempdir(), f"jaxsparse-{os.getuid()}", "tune")


class CostCache:
    """Costs by key, in `folder`; None keeps nothing. Safe with several processes at once: a file is
    replaced whole, so reading takes no lock, and of two writers the last one stays.
    """

    def __init__(self, folder: Path | None):
        self.folder = folder

    def get(self, key: dict[str, Any]) -> Costs | None:
        """What was kept under `key` (JSON types), or None.

        A file that cannot be read, or does not hold costs of this key, counts as nothing kept.
        """
        if self.folder is None:
            return None
        try:
            with self._file(key).open("rb") as file:
                text = file.read(MOST_BYTES + 1)
            kept = msgspec.json.decode(text, type=Kept)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        same = msgspec.json.decode(msgspec.json.encode(key)) == kept.key
        return kept.costs if same else None

    def put(self, key: dict[str, Any], costs: Costs) -> None:
        """Keep `costs` under `key`.

        Warns:
            RuntimeWarning: where the folder cannot be written to: nothing is kept.
        """
        if self.folder is None:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write(self._file(key), msgspec.json.encode(Kept(key, costs)))
        except OSError as error:
            warnings.warn(
                f"measurements are not kept: {self.folder}: {error.strerror or error}; "
                "cache= takes another folder, or False",
                RuntimeWarning,
                stacklevel=2,
            )

    def _file(self, key: dict[str, Any]) -> Path:
        assert self.folder is not None
        digest = hashlib.sha256(msgspec.json.encode(key, order="deterministic")).hexdigest()
        return self.folder / f"{digest[:32]}.json"


class Kept(msgspec.Struct, frozen=True):
    """A file's content: the key in clear, so that a reader sees what was measured."""

    key: dict[str, Any]
    costs: Costs
