"""What a fleet's folder holds, in one file: what went in, which software, every shard with its digests, what failed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from shoal.errors import InputError
from shoal.files import digest_of, write_whole
from shoal.fleet.store import Shard, disk_space, shard_of

NAME = "manifest.json"
FORMAT = "shoal fleet"
#: Version of the file; a newer one is refused.
VERSION = 1


@dataclass(frozen=True)
class Source:
    """A file that was read: its name, its SHA-256 and its size in bytes."""

    name: str
    digest: str
    size: int


@dataclass(frozen=True)
class Failed:
    """A shard that could not be made, and why, without data."""

    stage: str
    key: str
    message: str


@dataclass(frozen=True)
class Manifest:
    """Inputs, versions, the grid's step in microseconds once it is known, and stages in the order they were made."""

    inputs: tuple[Source, ...]
    versions: dict[str, str]
    step_us: int | None = None
    stages: dict[str, tuple[Shard, ...]] = field(default_factory=dict)
    failures: tuple[Failed, ...] = ()

    def with_stage(self, stage: str, shards: Iterable[Shard], failures: Mapping[str, str] | None = None) -> Manifest:
        """The manifest after a stage, whose earlier record it replaces. ``failures`` are messages by key."""
        failed = tuple(Failed(stage, key, message) for key, message in sorted((failures or {}).items()))
        others = tuple(failure for failure in self.failures if failure.stage != stage)
        ordered = tuple(sorted(shards, key=lambda shard: shard.key))
        return replace(self, stages={**self.stages, stage: ordered}, failures=others + failed)

    def households(self, stage: str) -> int:
        """How many households a stage has done."""
        return sum(shard.households for shard in self.stages.get(stage, ()))


def write_manifest(folder: str | Path, manifest: Manifest) -> Path:
    """Write ``manifest.json``, whole or not at all."""
    body = asdict(manifest)
    content = {"format": FORMAT, "version": VERSION, "digest": _digest(body), **body}
    data = json.dumps(content, indent=1, ensure_ascii=False).encode()
    target = Path(folder, NAME)
    with disk_space():
        write_whole(target, target.with_name(f".{NAME}.part"), lambda path: path.write_bytes(data))
    return target


def read_manifest(folder: str | Path) -> Manifest:
    """The manifest as it was last written."""
    name = Path(folder).name
    try:
        content = json.loads(Path(folder, NAME).read_bytes())
    except FileNotFoundError:
        raise InputError(f"dir: {name} has no {NAME}; `shoal run` makes one") from None
    except ValueError:
        raise _damaged(name) from None
    if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
        raise _damaged(name)
    version = content.pop("version", None)
    if type(version) is int and version > VERSION:
        raise InputError(f"dir: the {NAME} in {name} was made by a newer shoal; use that one, or a new folder")
    if version != VERSION or content.pop("digest", None) != _digest(content):
        raise _damaged(name)
    return _manifest_of(content, name)


def _manifest_of(content: dict[str, Any], name: str) -> Manifest:
    try:
        return Manifest(
            inputs=tuple(Source(**source) for source in content["inputs"]),
            versions=dict(content["versions"]),
            step_us=content["step_us"],
            stages={stage: tuple(map(shard_of, shards)) for stage, shards in content["stages"].items()},
            failures=tuple(Failed(**failure) for failure in content["failures"]),
        )
    except (KeyError, TypeError, AttributeError, ValueError):
        raise _damaged(name) from None


def _digest(body: Mapping[str, Any]) -> str:
    """The seal over all but itself; the order of stages counts too."""
    return digest_of([list(body["stages"]) if isinstance(body.get("stages"), dict) else None, body])


def _damaged(name: str) -> InputError:
    return InputError(f"dir: the {NAME} in {name} is damaged; delete it and run again, finished shards are kept")
