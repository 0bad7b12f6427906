"""Reading a mechanism file of any kind."""

from __future__ import annotations

from pathlib import Path

from shoal import archive
from shoal.mechanism import codebook_file, mechanism_file
from shoal.mechanism.codebook import Codebook
from shoal.mechanism.mechanism import Mechanism

#: What releases answers.
Releaser = Mechanism | Codebook


def load(path: str | Path) -> Releaser:
    """Read what :meth:`Mechanism.save` or :meth:`Codebook.save` wrote.

    A file that is damaged, altered or of another version is refused.

    Returns:
        The mechanism or the codebook, with the digest of the one that was saved.

    >>> import shoal, tempfile
    >>> book = shoal.codebook([[0.0], [1.0]], shoal.NeighborGraph.complete(["a", "b"]), epsilon=2.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     book.save(f"{folder}/two.shoal")
    ...     shoal.load(f"{folder}/two.shoal").digest == book.digest
    True
    """
    return from_bytes(archive.content_of(path, mechanism_file.FORMAT), f"path: {Path(path).name}")


def from_bytes(content: bytes, name: str = "content") -> Releaser:
    """The same from the content of a file; ``name`` is what messages call it."""
    if archive.form_of(content) == codebook_file.FORMAT:
        return Codebook.from_bytes(content, name)
    return Mechanism.from_bytes(content, name)
