"""The same readings, kW of a few homes every half hour, in the formats that utilities hand out."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl

import shoal

STEP = timedelta(minutes=30)


def homes(n: int = 3, days: int = 3) -> pl.DataFrame:
    """household, timestamp, kw; rounded to whole Wh, as meters show them."""
    frame = shoal.simulate_meters(n, days, 30, seed=5, start="2024-01-10")
    return frame.with_columns(kw=(pl.col("kw") * 500).round() / 500)


def kwh(frame: pl.DataFrame) -> pl.DataFrame:
    """Energy per interval instead of power."""
    return frame.with_columns(kwh=pl.col("kw") / 2).drop("kw")


def register(frame: pl.DataFrame, start: float = 12345.0) -> pl.DataFrame:
    """Totals at the beginning of each interval, and at the end of the last."""
    energy = kwh(frame)
    totals = energy.with_columns(kwh=start + pl.col("kwh").cum_sum().over("household") - pl.col("kwh"))
    last = energy.group_by("household").agg(pl.col("timestamp").max() + STEP, kwh=start + pl.col("kwh").sum())
    return pl.concat([totals, last.select(totals.columns)]).sort("household", "timestamp")


def write_nem12(path: Path, frame: pl.DataFrame, *, extra: bool = False) -> None:
    """Channel E1 in kWh, B1 beside it; with ``extra`` a controlled load E2 in Wh that takes half of E1's energy."""
    lines = ["100,NEM12,202402010000,MDP1,Retailer"]
    for (name,), home in kwh(frame).group_by("household", maintain_order=True):
        share = 0.5 if extra else 1.0
        channels = [("E1", "kWh", share), ("B1", "kWh", 0.1), *([("E2", "Wh", 500.0)] if extra else [])]
        for channel, unit, factor in channels:
            lines.append(f"200,{name},E1B1,1,{channel},N1,METER{name},{unit},30,20240601")
            for (_,), day in home.group_by(pl.col("timestamp").dt.date(), maintain_order=True):
                values = ",".join(f"{value * factor:.6f}" for value in day["kwh"])
                lines.append(f"300,{day['timestamp'][0]:%Y%m%d},{values},A,,,20240131000000,")
    path.write_text("\r\n".join([*lines, "900"]) + "\r\n")


def write_green_button(path: Path, frame: pl.DataFrame) -> None:
    """An Atom feed: usage points, a reading type in Wh, one of what is fed in, and a block of readings per day."""
    path.write_text("\n".join(_feed(frame)))


def _feed(frame: pl.DataFrame) -> Iterator[str]:
    base = "https://utility.example/espi/1_1/resource"
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield '<feed xmlns="http://www.w3.org/2005/Atom" xmlns:espi="http://naesb.org/espi"><title>Green Button</title>'
    for number, direction in ((7, 1), (8, 19)):
        yield _entry(
            f"{base}/ReadingType/{number}",
            "<espi:ReadingType><espi:accumulationBehaviour>4</espi:accumulationBehaviour>"
            f"<espi:commodity>1</espi:commodity><espi:flowDirection>{direction}</espi:flowDirection>"
            "<espi:intervalLength>1800</espi:intervalLength><espi:powerOfTenMultiplier>-1</espi:powerOfTenMultiplier>"
            "<espi:uom>72</espi:uom></espi:ReadingType>",
        )
    for number, ((_,), home) in enumerate(kwh(frame).group_by("household", maintain_order=True), start=1):
        point = f"{base}/RetailCustomer/9/UsagePoint/{number}"
        yield _entry(point, "<espi:UsagePoint/>")
        for reading, kind, factor in ((1, 7, 1.0), (2, 8, 0.3)):
            own = f"{point}/MeterReading/{reading}"
            yield _entry(own, "<espi:MeterReading/>", related=f"{base}/ReadingType/{kind}")
            for (day,), part in home.group_by(pl.col("timestamp").dt.date(), maintain_order=True):
                inside = "".join(
                    "<espi:IntervalReading><espi:timePeriod><espi:duration>1800</espi:duration>"
                    f"<espi:start>{int(_utc(when).timestamp())}</espi:start></espi:timePeriod>"
                    f"<espi:value>{round(value * 10000 * factor)}</espi:value></espi:IntervalReading>"
                    for when, value in part.select("timestamp", "kwh").iter_rows()
                )
                yield _entry(f"{own}/IntervalBlock/{day}", f"<espi:IntervalBlock>{inside}</espi:IntervalBlock>")
    yield "</feed>"


def _utc(when: datetime) -> datetime:
    return when.replace(tzinfo=UTC)


def _entry(own: str, content: str, related: str = "") -> str:
    links = f'<link rel="self" href="{own}"/><link rel="up" href="{own.rsplit("/", 1)[0]}"/>'
    links += f'<link rel="related" href="{related}"/>' if related else ""
    return f"<entry><id>urn:uuid:{own}</id>{links}<content>{content}</content></entry>"
