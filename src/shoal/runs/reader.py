"""For the recipient: how far homes lie from such a row, by step. One law, pooled over all crowds.

How far its members lie from a row is what a recipient asks next, and what must not be told crowd by crowd: mean and
spread of the same members are two kinds of figures about them, and enough kinds give all of them. What is told is one
law over all homes of the release:

    d = (a home's figure − its row's figure) / the row's level,    level = |mean of the row's entries|,

and of d, step by step, the quantiles :data:`QUANTILES`, pooled over every crowd with news, rounded to hundredths, and
only where at least :data:`FEWEST` crowds are pooled. For a table d is in units of the column, not relative. With at
least a tenth of all homes on either side of every quantile, no single home moves it by more than the distance to the
next one. It does not hide what no mean hides: who knows the figures of all other homes computes the last one. It is the
same file under every exchange of members and every order of homes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.errors import InputError
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
class ReaderLaw:
    """How far homes lie from the row of their crowd, pooled over all crowds: quantiles by step (or column)."""

    entries: tuple[str, ...]  #: step 1, 2, … or names of columns
    relative: bool  #: to the level of the row
    quantiles: tuple[tuple[float, ...], ...]  #: by entry, those of :data:`QUANTILES`
    crowds: int

    @classmethod
    def of(
        cls, members: pl.DataFrame, rows: pl.DataFrame, entries: Sequence[str], *, relative: bool
    ) -> ReaderLaw | None:
        """The law of a release, from the plan of the crowd stage; None where too few crowds are pooled.

        It is that of the members whose own value entered a row with news.
        """
        import polars as pl

        new = rows.filter(pl.col("news") & ~pl.col("retired")).select("crowd", row="values")
        told = members.filter(pl.col("news") & pl.col("value").is_not_null() & ~pl.col("waits"))
        both = told.join(new, on="crowd", how="inner").filter(pl.col("row").list.len() == len(entries))
        number = both["crowd"].n_unique()
        if number < FEWEST:
            return None
        values, means = both["value"].to_numpy(), np.array(both["row"].to_list())
        off, decimals = values - means, [DECIMALS] * len(entries)
        if relative:
            level = np.abs(means.mean(axis=1))
            off = off[level > 0] / level[level > 0][:, None]
        else:
            spread = np.sort(values, axis=0).std(axis=0)
            decimals = [1 - int(np.floor(np.log10(one))) if one > 0 else DECIMALS for one in spread.tolist()]
        if not len(off):
            return None
        # Order statistics, not interpolated: the same bits in every order of homes.
        points = np.quantile(off, QUANTILES, axis=0, method="inverted_cdf").T.tolist()
        rounded = (tuple(round(x, digits) + 0.0 for x in row) for row, digits in zip(points, decimals, strict=True))
        return cls(tuple(entries), relative, tuple(rounded), number)

    def around(self, row: Sequence[float] | FloatArray) -> pl.DataFrame:
        """Entry, the row's figure, and the figures below which 10, 25, 50, 75 and 90 % of homes lie, by step.

        >>> law = ReaderLaw(("1", "2"), True, ((-0.5, -0.2, 0.0, 0.2, 0.5),) * 2, 12)
        >>> law.around([1.0, 3.0]).row(1)
        ('2', 3.0, 2.0, 2.6, 3.0, 3.4, 4.0)
        """
        import polars as pl

        given = np.asarray(row, dtype=np.float64)
        if given.shape != (len(self.entries),) or not np.isfinite(given).all():
            raise InputError(f"row must be the number of a crowd, or its {len(self.entries)} released figures")
        level = abs(float(given.mean())) if self.relative else 1.0
        bounds = given[:, None] + level * np.array(self.quantiles)
        names = [f"below_{100 * q:g}" for q in QUANTILES]
        return pl.DataFrame(
            {"entry": list(self.entries), "row": given.tolist()}
            | {name: [round(x, 6) + 0.0 for x in bounds[:, j].tolist()] for j, name in enumerate(names)}
        )

    def text(self) -> str:
        """The file to pass on."""
        content = {
            "what": "how far homes lie from the row of their crowd, pooled over all crowds: (home - row) / level",
            "level": "the mean of the row's entries" if self.relative else "1 (units of the column)",
            "quantiles": list(QUANTILES),
            "relative": self.relative,
            "crowds": self.crowds,
            "entries": [
                {"entry": name, "distance": list(row)} for name, row in zip(self.entries, self.quantiles, strict=True)
            ],
        }
        return json.dumps(content, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def read(cls, path: str | Path) -> ReaderLaw:
        """From the file that was passed on."""
        try:
            content: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
            entries = content["entries"]
            return cls(
                tuple(str(one["entry"]) for one in entries),
                bool(content["relative"]),
                tuple(tuple(float(x) for x in one["distance"]) for one in entries),
                int(content["crowds"]),
            )
        except FileNotFoundError:
            raise InputError(
                f"reader: fewer than {FEWEST} crowds have news in this release, and how far so few homes lie from "
                "their rows is not told: it would be a second figure about the same members"
            ) from None
        except (OSError, ValueError, KeyError, TypeError):
            raise InputError(f"reader: {Path(path).name} is damaged; ask for it again") from None


def around(law: Path, table: Path, row: int | Sequence[float]) -> pl.DataFrame:
    """:meth:`ReaderLaw.around` a row, or the number of a crowd, from the two files that were passed on."""
    import polars as pl

    pooled = ReaderLaw.read(law)
    if isinstance(row, int):
        rows = pl.read_csv(table).filter(pl.col("crowd") == row)
        if not len(rows):
            raise InputError("row must be the number of a crowd in public/released.csv, or its figures")
        row = rows["kw"].to_list() if "step" in rows.columns else list(rows.select(pooled.entries).row(0))
    return pooled.around(row)
