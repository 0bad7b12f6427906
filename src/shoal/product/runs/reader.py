"""For the recipient: how far homes lie from such a row, by step. One law, pooled over all crowds.

How far its members lie from a row is what a recipient asks next, and what must not be told crowd by crowd: mean and
spread of the same members are two kinds of figures about them, and enough kinds give all of them. What is told is one
law over all homes of the release:

    d = (a home's figure − its row's figure) / the row's level,    level = |mean of the row's entries|,

and of d, step by step, the quantiles :data:`QUANTILES`, pooled over all crowds, rounded to hundredths, and
only where at least :data:`FEWEST` crowds are pooled. For a table d is in units of the column, not relative. With at
least a tenth of all homes on either side of every quantile, no single home moves it by more than the distance to the
next one. It is computed from printed rows, and outside of what the rules of a row promise. It is the
same file under every exchange of members and every order of homes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shoal.errors import InputError
from shoal.plaintext import cell
from shoal.records import Record
from shoal.validation import FloatArray

if TYPE_CHECKING:
    import polars as pl

#: What is told of the pooled law.
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
#: Crowds, at least, over which it is pooled, and decimals of relative distances.
FEWEST, DECIMALS = 10, 2
#: Where it is passed on.
FILE = "public/reader.json"


@dataclass(frozen=True)
class EntryLaw(Record):
    """How far homes lie from the row of their crowd at one entry, a step or a column: one figure per quantile."""

    entry: str
    distance: tuple[float, ...]


@dataclass(frozen=True)
class ReaderLaw(Record):
    """How far homes lie from the row of their crowd, pooled over all crowds: the file that is passed on."""

    relative: bool  #: to the level of the row
    crowds: int
    entries: tuple[EntryLaw, ...]
    level: str = ""
    what: str = "how far homes lie from the row of their crowd, pooled over all crowds: (home - row) / level"
    quantiles: tuple[float, ...] = QUANTILES

    @classmethod
    def of(
        cls, members: pl.DataFrame, rows: pl.DataFrame, entries: Sequence[str], *, relative: bool
    ) -> ReaderLaw | None:
        """The law of a release, from the plan of the crowd stage; None where too few crowds are pooled.

        It is that of the members whose own figures of today are in a row without a withheld figure.
        """
        import polars as pl

        whole = ~pl.col("values").list.eval(pl.element().is_nan()).list.any()
        new = rows.filter(whole & ~pl.col("retired")).select("crowd", row="values")
        here = members.filter(pl.col("own") & pl.col("value").is_not_null() & ~pl.col("waits"))
        both = here.join(new, on="crowd", how="inner").filter(pl.col("row").list.len() == len(entries))
        crowds = both["crowd"].n_unique()
        if crowds < FEWEST:
            return None
        values, means = both["value"].to_numpy(), np.array(both["row"].to_list())
        off, decimals = values - means, [DECIMALS] * len(entries)
        if relative:
            level = np.abs(means.mean(axis=1))
            off = off[level > 0] / level[level > 0][:, None]
        else:
            spread = np.sort(values, axis=0).std(axis=0)
            decimals = [1 - int(np.floor(np.log10(width))) if width > 0 else DECIMALS for width in spread.tolist()]
        if not len(off):
            return None
        # Order statistics, not interpolated: the same bits in every order of homes.
        points = np.quantile(off, QUANTILES, axis=0, method="inverted_cdf").T.tolist()
        laws = (
            EntryLaw(name, tuple(round(x, digits) + 0.0 for x in row))
            for name, row, digits in zip(entries, points, decimals, strict=True)
        )
        level_words = "the mean of the row's entries" if relative else "1 (units of the column)"
        return cls(relative, crowds, tuple(laws), level_words)

    def around(self, row: Sequence[float] | FloatArray) -> pl.DataFrame:
        """Entry, the row's figure, and the figures below which 10, 25, 50, 75 and 90 % of homes lie, by step.

        >>> law = ReaderLaw(True, 12, tuple(EntryLaw(step, (-0.5, -0.2, 0.0, 0.2, 0.5)) for step in "12"))
        >>> law.around([1.0, 3.0]).row(1)
        ('2', 3.0, 2.0, 2.6, 3.0, 3.4, 4.0)
        """
        import polars as pl

        given = np.asarray(row, dtype=np.float64)
        if given.shape != (len(self.entries),) or not np.isfinite(given).all():
            raise InputError(f"row must be the number of a crowd, or its {len(self.entries)} released figures")
        level = abs(float(given.mean())) if self.relative else 1.0
        bounds = given[:, None] + level * np.array([law.distance for law in self.entries])
        names = [f"below_{100 * q:g}" for q in QUANTILES]
        return pl.DataFrame(
            {"entry": [law.entry for law in self.entries], "row": given.tolist()}
            | {name: [round(x, 6) + 0.0 for x in bounds[:, j].tolist()] for j, name in enumerate(names)}
        )

    def text(self) -> str:
        """The file to pass on."""
        return json.dumps(self.to_json(), indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def read(cls, path: Path) -> ReaderLaw:
        """From the file that was passed on."""
        try:
            return cls.from_json(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            raise InputError(
                f"reader: fewer than {FEWEST} crowds have new rows in this release. How far so few homes lie from "
                "their rows is not published: it would be a second figure about the same members"
            ) from None
        except (OSError, ValueError):
            raise InputError(f"reader: {path.name} is damaged; ask for it again") from None


def around(law: Path, table: Path, row: int | Sequence[float]) -> pl.DataFrame:
    """:meth:`ReaderLaw.around` a row, or the number of a crowd, from the two files that were passed on."""
    import polars as pl

    pooled = ReaderLaw.read(law)
    if isinstance(row, int):
        rows = pl.read_csv(table).filter(pl.col("crowd") == row)
        if not len(rows):
            raise InputError("row must be the number of a crowd in public/released.csv, or its figures")
        columns = [cell(entry.entry) for entry in pooled.entries]
        row = rows["kw"].to_list() if "step" in rows.columns else list(rows.select(columns).row(0))
    return pooled.around(row)
