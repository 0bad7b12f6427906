"""Two worlds that differ in one home: all that it sent is there, or taken away with whatever is there because of it.

A world is the files of a folder. Three homes send half-hourly readings; the fourth, the odd one, sends whatever a cell
can hold: text, quotes, bytes that are no characters, other intervals, instants that do not exist, repeated hours, names
in several spellings, files that are none. The others' readings, and their forecasts, have to be the same bits.

A row of one home may hold any text. A cell of a row that several homes share holds no separator of its own: there it is
what stands between two of them.
"""

from __future__ import annotations

import gzip
import random
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl

import shoal
from shoal.product.runs.meter_rows import declared_grid, make_shard, open_meter_files, read_readings, sort_into_buckets
from shoal.product.sources.meters.crowd_points import usual_day
from shoal.product.sources.meters.meter_files import choose_spellings, order_rows
from shoal.product.sources.meters.quality import repair_readings

LAYOUTS = ("long", "households", "times", "days", "single")
ENCODINGS = (None, "cp1252", "utf-16", "latin-1")
#: Origin, zone of the clocks, and whether timestamps have offsets.
CLOCKS = (
    ("2024-01-09T00:00", None, False),
    ("2024-10-28T00:00", "Europe/Zurich", False),
    ("2024-04-01T00:00", "Europe/Zurich", False),
    ("2024-10-28T00:00+01:00", "Europe/Zurich", True),
    ("2024-03-31T22:00+00:00", "Europe/London", True),
)
MINUTES = 30
OTHERS = ("Bühl 1", "B2", "É 3")
ODD = "A000"

VALUES = (
    "", " ", "n/a", "nan", "inf", "-inf", "1e400", "1e308", "-5", "0", "0.0001", "99999", "1.5.5", "=1+1", '"', '"1',
    '1"5', '""', '"1.5"', "'", "\ufffd", "\x00", "\x1f", "\r", "\u00a0", "\u200b1", "１２", "½", "0x1A", "1_000", "+3",
    "NULL", "#", "true", "2024-01-01", "\x85", "\x1c", "ÿ", "1.25", "2.5",
)  # fmt: skip
TIMES = (
    "", "yesterday", "2024-13-01 00:00", "2024-02-30 00:00", "0001-01-01 00:00", "9999-12-31 23:59",
    "99999-01-01 00:00",
    "262142-01-01 00:00", "-0001-01-01 00:00", "2024-10-27 02:00", "2024-10-27 02:30", "2024-03-31 02:30", "1704067200",
    "2024-01-05 00:00Z", "2024-01-05 00:00+01:00", "2024-01-05T00:00:00.000001", "2024-01-05 00:00-99:99", "2024-01-05",
    "03/04/2024 00:00", "20240105 0000", "202401050000", "2024/01/05 00:00", "05.01.2024 00:00", "24:00", '"', "\x00",
)  # fmt: skip
NAMES = (ODD, ODD, ODD, "a000", "A000\u200b", "\u00a0A000", "A000 ", "A" * 2000, "A\x000", "", '"A000"', "Ａ000")
#: Files of one household that cannot be read.
FILES = (
    b"", b"\n", b"foo\nbar\n", b"PK\x03\x04", b"100,NEM12,2024", b"<feed/>", b"\xff\xfe\x00", b"timestamp\n",
    b"kw\n1\n",     b"timestamp,kw,kw\n", b"timestamp,kw\n", b"\x1f\x8b", b"household,timestamp,kw\n",
)  # fmt: skip


class World:
    """The settings and the content of one pair of worlds, made from a seed."""

    def __init__(self, seed: int, shape: int | None = None, days: int = 4) -> None:
        chance = random.Random(seed if shape is None else shape)  # what is shared by the pairs of a shape
        self.days = days
        self.layout = LAYOUTS[(seed if shape is None else shape) % len(LAYOUTS)]
        self.encoding = chance.choice(ENCODINGS)
        self.origin, self.zone, self.instants = chance.choice(CLOCKS[:3] if self.layout == "days" else CLOCKS)
        self.separator = chance.choice(",;\t|")
        self.size = chance.choice((1, 2, 3, 1000))
        self.quoted = self.layout in ("long", "households") and chance.random() < 0.3
        self.end = chance.choice(("\n", "\r\n"))
        self.values = {(home, i): round(chance.uniform(0.1, 3), 3) for home in OTHERS for i in range(days * 48)}
        self.gaps = {key for key in self.values if chance.random() < 0.03}
        self.chance = random.Random(seed)
        start = shoal_instant(self.origin, self.zone) - timedelta(days=days)
        self.stamps = [self.stamp(start + timedelta(minutes=MINUTES * i)) for i in range(days * 48)]

    def stamp(self, moment: datetime) -> str:
        """An instant as the files have it."""
        if self.zone is not None:
            moment = moment.astimezone(ZoneInfo(self.zone))
        return moment.isoformat(timespec="minutes") if self.instants else f"{moment:%Y-%m-%d %H:%M}"

    @property
    def config(self) -> Any:
        """The settings that everything is declared by."""
        return shoal.Config(
            secret="readings", customers=9, origin=self.origin, epsilon=1.0, typical_kw=1.0, unit="kw", horizon=2,
            interval=MINUTES, time_zone=self.zone, encoding=self.encoding, train_days=self.days, order=(1, 0),
            shard_size=self.size,
        )  # fmt: skip

    def cell(self, home: str, i: int) -> str:
        """What another home sent at an instant."""
        value = "" if (home, i) in self.gaps else str(self.values[home, i])
        value = value if self.separator == "," else value.replace(".", ",")
        return f'"{value}"' if self.quoted else value

    def odd_times(self) -> list[str]:
        """When the odd home sends, in the order of its rows."""
        kind, stamps = self.chance.randrange(7), list(self.stamps)
        if kind == 0:  # every ten minutes, or off the grid
            first = shoal_instant(self.origin, self.zone) - timedelta(days=2, minutes=self.chance.choice((0, 3)))
            return [self.stamp(first + timedelta(minutes=10 * i)) for i in range(self.chance.choice((5, 300)))]
        if kind == 1:  # the hours that a clock change repeats, several times
            return [at for at in stamps if " 02:" in at or "T02:" in at] * self.chance.choice((1, 2, 3, 5))
        if kind == 2:
            self.chance.shuffle(stamps)
        if kind == 3:  # long before and after
            moment = shoal_instant(self.origin, self.zone)
            return [self.stamp(moment + timedelta(days=self.chance.randrange(-900, 900))) for _ in range(20)] + stamps
        if kind == 4:
            return [self.chance.choice(TIMES) for _ in range(30)]
        return stamps

    def odd_value(self, *, shared: bool) -> str:
        """What the odd home sends; in a row that others share it holds no separator."""
        if self.chance.random() < 0.5:
            return str(round(self.chance.uniform(0.1, 30), 2)).replace(".", "." if self.separator == "," else ",")
        value = self.chance.choice(VALUES)
        if not shared and self.chance.random() < 0.3:
            value += self.chance.choice((self.separator, self.separator * 3, f'"{self.separator}', '"', "\n", '"\n"'))
        return value

    def files(self, *, odd: bool) -> dict[str, bytes]:
        """Name -> content of the files; without the odd home, or with it."""
        return getattr(self, f"_{self.layout}")(odd)  # type: ignore[no-any-return]

    def _text(self, lines: list[list[str]]) -> bytes:
        text = self.end.join(self.separator.join(line) for line in lines) + self.end
        content = text.encode(self.encoding or "utf-8", "surrogatepass" if self.encoding == "utf-16" else "replace")
        if self.chance.random() < 0.3 and self.encoding is None:  # bytes that are no characters, in the odd cells alone
            for text, raw in (("½", b"\xa0"), ("ÿ", b"\xe2\x82"), ("true", b"\xff")):
                content = content.replace(text.encode(), raw)
        return content

    def _long(self, odd: bool) -> dict[str, bytes]:
        lines = [[home, at, self.cell(home, i)] for home in OTHERS for i, at in enumerate(self.stamps)]
        if self.size < 3:  # in any order
            lines.sort(key=lambda line: hash_of(*line))
        if odd:
            for at in self.odd_times():
                row = [self.chance.choice(NAMES), at, self.odd_value(shared=False)]
                row = row[: self.chance.randint(1, 3)] if self.chance.random() < 0.05 else row
                lines.insert(self.chance.choice((0, len(lines), self.chance.randint(0, len(lines)))), row)
        return {"m.csv": self._text([["household", "timestamp", "kw"], *lines])}

    def _households(self, odd: bool) -> dict[str, bytes]:
        column = odd or self.chance.random() < 0.5
        names = [*([ODD] if column else []), *OTHERS]
        rows = [[at, *([""] if column else []), *(self.cell(home, i) for home in OTHERS)]
                for i, at in enumerate(self.stamps)]  # fmt: skip
        if odd:
            for row in rows:
                row[1] = self.odd_value(shared=True) if self.chance.random() < 0.7 else ""
            for at in self.odd_times() if self.chance.random() < 0.8 else []:
                empty = self.chance.choice(("", " ", '""'))
                extra = [at, self.odd_value(shared=True), *[empty] * len(OTHERS)]
                rows.insert(self.chance.choice((0, len(rows), self.chance.randint(0, len(rows)))), extra)
        return {"w.csv": self._text([["timestamp", *names], *rows])}

    def _times(self, odd: bool) -> dict[str, bytes]:
        stamps, extra = list(self.stamps), []
        if odd and self.chance.random() < 0.7:
            known = set(stamps)
            dated = [at for at in dict.fromkeys(self.odd_times()) if at[:2] == "20" and at[4:5] == "-" and len(at) > 11]
            extra = [at for at in dated if at not in known]
        if len(set(stamps)) < len(stamps):  # the repeated hour cannot be columns
            stamps = list(dict.fromkeys(stamps))
        place = {at: i for i, at in reversed(list(enumerate(self.stamps)))}
        rows = [[home, *(self.cell(home, place[at]) for at in stamps), *[""] * len(extra)] for home in OTHERS]
        if odd:
            for _ in range(self.chance.choice((1, 1, 2))):
                own = [self.odd_value(shared=False) for _ in (*stamps, *extra)]
                rows.insert(self.chance.randint(0, len(rows)), [self.chance.choice(NAMES), *own])
        return {"t.csv": self._text([["household", *stamps, *extra], *rows])}

    def _days(self, odd: bool) -> dict[str, bytes]:
        step = 10 if odd and self.chance.random() < 0.5 else 30
        clock = [f"{h:02}:{m:02}" for h in range(24) for m in range(0, 60, step)]
        days = list(dict.fromkeys(at[:10] for at in self.stamps))
        rows = []
        for home in OTHERS:
            for d, day in enumerate(days):
                cells = [self.cell(home, (d * 48 + int(at[:2]) * 2 + int(at[3:5]) // 30) % (self.days * 48))
                         if at[3:5] in ("00", "30") else "" for at in clock]  # fmt: skip
                rows.append([home, day, *cells])
        if odd:
            for day in [*days, *(self.chance.choice(TIMES) for _ in range(3)), *days[:2]]:
                own = [self.odd_value(shared=False) for _ in clock]
                rows.insert(self.chance.randint(0, len(rows)), [self.chance.choice(NAMES), day, *own])
        return {"d.csv": self._text([["household", "date", *clock], *rows])}

    def _single(self, odd: bool) -> dict[str, bytes]:
        head = ["timestamp", "kw"]
        files = {f"site.{k}.csv": self._text([head, *([at, self.cell(home, i)] for i, at in enumerate(self.stamps))])
                 for k, home in enumerate(OTHERS)}  # fmt: skip
        if odd:
            name = self.chance.choice(("site.csv", "site.3.CSV", "a.b.c.csv", "0.txt", "z.csv.gz", "m.parquet"))
            rows = [[at, self.odd_value(shared=False)] for at in self.odd_times()]
            content = self.chance.choice((*FILES, *[self._text([head, *rows])] * len(FILES)))
            packed = name.endswith(".gz") and self.chance.random() < 0.7
            files[name] = gzip.compress(content)[: None if self.chance.random() < 0.8 else -4] if packed else content
        return files


def shoal_instant(origin: str, zone: str | None) -> datetime:
    """An origin as an instant."""
    moment = datetime.fromisoformat(origin)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC if zone is None else ZoneInfo(zone)).astimezone(UTC)


def hash_of(*texts: str) -> int:
    """A number by which rows are put in an order that means nothing."""
    return zlib.crc32("|".join(texts).encode())


def readings_of(files: dict[str, bytes], world: World, folder: Path, kind: str = "shards") -> dict[str, bytes]:
    """Home -> the bits of its readings on the grid, by the "shards" of a run or in "memory", or of its "curves"."""
    config, bits, given = world.config, {}, folder / "in"
    given.mkdir(parents=True, exist_ok=True)
    for old in given.iterdir():
        old.unlink()
    for name, content in files.items():
        (given / name).write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        opened = open_meter_files(sorted(given.iterdir()), config)
        grid = declared_grid(config, energy=opened.energy)
        for data in in_memory(opened, grid, world) if kind == "memory" else in_shards(opened, grid, config, folder):
            if kind == "curves":
                bits |= forecasts_of(data, world)
                continue
            for (home,), own in data.frame.drop_nulls().partition_by("household", as_dict=True).items():
                stamps = own["timestamp"].dt.epoch("us").to_numpy().tobytes()
                bits[str(home)] = stamps + own["kw"].to_numpy().tobytes()
    return {home: own for home, own in bits.items() if home in (*OTHERS, "site.0", "site.1", "site.2")}


def in_shards(opened: Any, grid: Any, config: Any, folder: Path) -> Iterator[Any]:
    """Readings as a run makes them: sorted into buckets on disk, then shard by shard."""
    rows = replace(sort_into_buckets(opened, folder / "rows", config), grid=grid)
    for bucket in rows.filled:
        make_shard(rows, bucket, str(folder / "shard.parquet"))
        yield read_readings(folder / "shard.parquet")


def in_memory(opened: Any, grid: Any, world: World) -> Iterator[Any]:
    """The same, without files in between."""
    pieces = pl.concat(
        [piece for number, source in enumerate(opened.sources) for piece in source.standard_batches(number)]
    )
    names = choose_spellings(pieces["household"].unique().to_list(), {}, together=True)
    rows = order_rows(pieces.with_columns(pl.col("household").replace(names)), opened.time_zone)
    yield repair_readings(rows, interval=timedelta(microseconds=grid.step_us), phase=grid.phase_us)


def forecasts_of(data: Any, world: World) -> dict[str, bytes]:
    """Home -> the bits of its forecast and of its usual day, where it has one."""
    try:
        given = datetime.fromisoformat(world.origin)
        made = shoal.forecast(
            data, order=(1, 0), train_days=world.days, horizon=2, season="day", origin=given, interval=data.step
        )
    except shoal.InputError:
        return {}
    every = zip(made.households, made.power, usual_day(made), strict=True)
    return {home: own.tobytes() + day.tobytes() for home, own, day in every}
