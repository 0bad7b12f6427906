"""Functions, methods and modules are named by a noun or a verb in the imperative, not by how a result looks afterwards.

``merge_mechanisms`` says what is done and ``answers`` what is there; ``joined`` and ``answered`` say neither.
Properties and functions that answer yes or no may be participles.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import shoal

SOURCE = Path(shoal.__file__).parent
#: Participles that are no other form of their verb: "read", "put", "cut", "split", "run" are imperatives too.
IRREGULAR = frozenset(
    [
        "begun",
        "beaten",
        "bent",
        "bitten",
        "born",
        "bought",
        "broken",
        "brought",
        "built",
        "caught",
        "chosen",
        "dealt",
        "done",
        "drawn",
        "driven",
        "dug",
        "eaten",
        "fallen",
        "fed",
        "felt",
        "flown",
        "forbidden",
        "foreseen",
        "forgotten",
        "forgiven",
        "fought",
        "frozen",
        "given",
        "gone",
        "grown",
        "heard",
        "held",
        "hidden",
        "hung",
        "kept",
        "known",
        "laid",
        "lain",
        "led",
        "left",
        "lent",
        "lit",
        "lost",
        "made",
        "meant",
        "met",
        "outdone",
        "overseen",
        "paid",
        "proven",
        "redone",
        "said",
        "seen",
        "sent",
        "shaken",
        "shown",
        "shrunk",
        "slept",
        "slid",
        "sold",
        "sought",
        "spent",
        "spoken",
        "spun",
        "stolen",
        "stood",
        "struck",
        "stuck",
        "sung",
        "sunk",
        "swept",
        "sworn",
        "swung",
        "taken",
        "taught",
        "thought",
        "thrown",
        "told",
        "torn",
        "undone",
        "understood",
        "withdrawn",
        "woken",
        "won",
        "worn",
        "wound",
        "woven",
        "written",
    ]
)
#: Words that end in "ed" and are verbs or nouns themselves.
OTHER = frozenset(
    [
        "bed",
        "bleed",
        "breed",
        "deed",
        "embed",
        "exceed",
        "feed",
        "heed",
        "need",
        "proceed",
        "red",
        "seed",
        "shed",
        "sled",
        "speed",
        "succeed",
        "weed",
    ]
)
#: Names that stay all the same, each with its reason.
EXCEPTIONS = {
    "product/ledger/ledger.py:Ledger.spent": "public, documented since the first release: what has been spent",
}


def is_participle(name: str) -> bool:
    word = name.strip("_")
    if "_" in word or name.startswith("__"):
        return False
    return word in IRREGULAR or (word.endswith("ed") and word not in OTHER)


def functions(tree: ast.AST, inside: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function with its qualified name, those inside functions and classes too."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield inside + node.name, node
        name = (
            f"{inside}{node.name}."
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            else inside
        )
        yield from functions(node, name)


def named_by_participle(source: str) -> list[str]:
    """Functions of a module whose name is one bare participle; properties and yes-or-no questions aside."""
    return [
        name
        for name, node in functions(ast.parse(source))
        if is_participle(node.name)
        and not any(
            "property" in ast.unparse(one) or ast.unparse(one).endswith(".setter") for one in node.decorator_list
        )
        and not (node.returns is not None and ast.unparse(node.returns) == "bool")
    ]


def test_functions_are_named_by_a_noun_or_an_imperative() -> None:
    found = {
        f"{path.relative_to(SOURCE).as_posix()}:{name}"
        for path in SOURCE.rglob("*.py")
        for name in named_by_participle(path.read_text(encoding="utf-8"))
    }
    assert found == EXCEPTIONS.keys()
    assert len(EXCEPTIONS) <= 15


def test_modules_are_named_by_a_noun_or_an_imperative() -> None:
    assert [path for path in SOURCE.rglob("*.py") if is_participle(path.stem)] == []


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("def joined(): ...", ["joined"]),
        ("def _held(): ...", ["_held"]),
        ("class Book:\n    def met(self) -> str: ...", ["Book.met"]),
        ("def outer():\n    async def answered() -> None: ...", ["outer.answered"]),
        ("if True:\n    def put_together(): ...\n    def settled(): ...", ["settled"]),
        ("class Book:\n    @staticmethod\n    def known() -> int: ...", ["Book.known"]),
        ("class Book:\n    @property\n    def joined(self) -> str: ...", []),
        ("class Book:\n    @cached_property\n    def known(self) -> str: ...", []),
        ("def allowed() -> bool: ...", []),
        ("def read(): ...\ndef split(): ...\ndef merge(): ...\ndef seed(): ...\ndef released_curve(): ...", []),
    ],
)
def test_the_detector_finds_participles_and_nothing_else(source: str, names: list[str]) -> None:
    assert named_by_participle(source) == names
