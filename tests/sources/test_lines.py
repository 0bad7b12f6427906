"""Text line by line: a line decides about itself, in the encoding that was declared."""

from __future__ import annotations

from pathlib import Path

import pytest

import shoal
from shoal.product.sources.declared_files import open_declared
from shoal.product.sources.frames import declared_encoding


def rows(
    path: Path, content: bytes, encoding: str | None = None, *, whole: bool = False
) -> list[tuple[str | None, ...]]:
    path.write_bytes(content)
    table = open_declared(path, declared_encoding(encoding), lambda header: whole)  # its temporary file lasts as long
    return table.raw.collect().rows()


@pytest.mark.parametrize(
    "odd", [b'c,"3', b'"c,3', b"c,3,4", b"c", b'c,"3\n4"', b"c,\xff", b"c,\xe2\x82", b'c,3"4', b"\xa0,1"]
)
def test_an_odd_line_leaves_the_others_as_they_are(tmp_path: Path, odd: bytes) -> None:
    others = [("Bühl", "1"), ("b", "2"), ("x, y", "5")]
    content = b"\n".join([b"h,v", "Bühl,1".encode(), odd, b"b,2", odd, b'"x, y",5\r', b""])
    found = rows(tmp_path / "m.csv", content)
    assert [row for row in found if row in others] == others
    assert all(row not in found for row in [("h", "v"), ("4", "")])


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252", "latin-1"])
def test_the_declared_encoding(tmp_path: Path, encoding: str) -> None:
    content = "name;kw\nZoé;1,5\n".encode(encoding)
    assert rows(tmp_path / "m.csv", content, encoding) == [("Zoé", "1,5")]
    assert rows(tmp_path / "m.csv", content, "utf-8" if encoding == "utf-8-sig" else encoding) == [("Zoé", "1,5")]


@pytest.mark.parametrize(
    "encoding", ["utf-7", "shift_jis", "gbk", "hz", "iso2022_jp", "raw_unicode_escape", "rot13", "none"]
)
def test_encodings_in_which_a_cell_could_take_in_the_next_are_refused(encoding: str) -> None:
    with pytest.raises(shoal.InputError, match=r"^encoding"):
        declared_encoding(encoding)


def test_what_is_wrong_with_a_header_is_told(tmp_path: Path) -> None:
    with pytest.raises(shoal.InputError, match="encoding: the first line"):
        rows(tmp_path / "m.csv", "Zähler,kw\n".encode("cp1252"))
    with pytest.raises(shoal.InputError, match="must name every column once"):
        rows(tmp_path / "m.csv", b"a,a\n1,2\n")
    with pytest.raises(shoal.InputError, match="it is unknown which cell is wrong"):
        rows(tmp_path / "m.csv", b"timestamp,a,b\n1,2,3,4\n", whole=True)
