"""Runs on class tables: constants and samples through the same stages, charged, carded, resumed and gone on with."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from small_run import charged, go, on_call, own_ledger, shards

import shoal
from shoal.product.cli.ledger_commands import list_releases

MEANS = shoal.Config(label="customer", crowd=4, period="2024-01")
CONSTANTS = replace(MEANS, method="center", epsilon=1.0, delta=1e-5, shard_size=12)
SAMPLES = shoal.Config(label="speaker", crowd=3, epsilon=1.0, delta=1e-5)
COLUMNS = ["kg", "money", "tiny"]


def constants(n: int = 26, seed: int = 0) -> pl.DataFrame:
    """Columns whose scales are up to 1e12 apart, text, and a column with one value."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(n, 3)) * [1.0, 1e9, 1e-3] + [5.0, 3e9, 0.0]
    return pl.DataFrame(
        {
            "customer": [f"C{i:02d}" for i in range(n)],
            **dict(zip(COLUMNS, values.T, strict=True)),
            "comment": ["none"] * n,
            "one": [1] * n,
        }
    )


def samples(labels: int = 4, rows: int = 20, seed: int = 0) -> pl.DataFrame:
    """Gaussian rows, a few more of each label than of the one before."""
    rng = np.random.default_rng(seed)
    parts = [
        pl.DataFrame({"speaker": [f"s{i}"] * (rows + i), "x": x[:, 0], "y": 1e6 * x[:, 1]})
        for i in range(labels)
        for x in [rng.normal(size=(rows + i, 2)) @ rng.normal(size=(2, 2)) + 2 * rng.normal(size=2)]
    ]
    return pl.concat(parts).sample(fraction=1.0, shuffle=True, seed=1)


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    constants().write_csv(folder / "customers.csv")
    go(folder / "constants", folder / "customers.csv", CONSTANTS)
    go(folder / "samples", samples(), SAMPLES)
    return folder


@pytest.fixture
def copied(once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(once, tmp_path / "copy"))


def assert_released_as_charged(out: Path) -> pl.DataFrame:
    """Every row left once and is on record; what may be passed on names nobody and has the same figures."""
    owned, public = pl.read_parquet(out / "released.parquet"), pl.read_csv(out / "public" / "released.csv")
    assert public.equals(owned.drop("source_row", "label").with_columns(public["crowd"], public["row"]))
    columns = [c for c in owned.columns if c not in ("source_row", "label", "crowd", "row")]
    name, answers, seen = shoal.Run.open(out).work.release_name, charged(out), Counter[str]()
    units = set()
    for row in owned.sort("source_row").iter_rows(named=True):
        seen[row["label"]] += 1
        query = name if seen[row["label"]] == 1 else f"{name} row {seen[row['label']]}"
        units.add(tuple(row[c] / recorded for c, recorded in zip(columns, answers[row["label"], query], strict=True)))
    run = shoal.Run.open(out)
    if run.work.facts.release is None or not run.work.facts.release.rounded:  # rounding is of what is on record
        [scales] = units  # one power of two for every column
        assert all(np.frexp(scale)[0] == 0.5 for scale in scales)
    assert sum(seen.values()) == sum(query.startswith(name) for _, query in answers)
    for _, rows in owned.group_by("crowd"):
        assert sorted(rows["row"]) == list(range(1, len(rows) + 1))
    return owned


def test_constants_become_the_answer_of_their_crowd(once: Path) -> None:
    out, true = once / "constants", constants()
    owned = assert_released_as_charged(out)
    assert owned.columns == ["source_row", "label", "crowd", "row", *COLUMNS]
    assert sorted(owned["source_row"]) == list(range(1, 27))
    both = owned.join(true, left_on="label", right_on="customer")
    for name in COLUMNS:
        spread = float(true[name].std())  # type: ignore[arg-type]
        for _, rows in both.group_by("crowd"):
            assert len(rows) >= CONSTANTS.crowd
            mean = rows[f"{name}_right"].mean()  # rounded to a base of at most two usual figures over the members
            np.testing.assert_allclose(rows[name].to_numpy(), mean, atol=4 * spread / len(rows))


def test_the_card_speaks_of_columns(once: Path) -> None:
    run = shoal.Run.open(once / "constants")
    text = run.card.to_markdown()
    assert run.card.design.query == "constant"
    assert run.card.design.delta < 1e-20
    for words in ("customer", "1 column", "units of the columns", "Errors by column"):
        assert words in text, words
    for words in ("kW", "household", "forecast", "| step |"):
        assert words not in text, words
    assert not any(name in text for name in true_names(once / "constants"))


def true_names(out: Path) -> set[str]:
    return set(pl.read_parquet(out / "released.parquet")["label"])


def test_one_shard_and_many_are_the_same(once: Path, tmp_path: Path) -> None:
    whole = go(tmp_path / "whole", constants(), replace(CONSTANTS, shard_size=1000), "design")
    parts = shoal.Run.open(once / "constants")
    assert len(shards(once / "constants", "design")) > 1
    assert len(shards(tmp_path / "whole", "design")) == 1
    one, many = whole.work.facts.design, parts.work.facts.design
    assert one is not None
    assert many is not None
    assert (one.labels, one.groups, one.edges) == (many.labels, many.groups, many.edges)
    assert one.delta == pytest.approx(many.delta, rel=1e-9)
    assert one.accuracy.rho == pytest.approx(many.accuracy.rho, rel=1e-9)


def test_the_promise_covers_all_rows_of_a_label(once: Path) -> None:
    out = once / "samples"
    owned = assert_released_as_charged(out)
    run, counts = shoal.Run.open(out), Counter(owned["label"].to_list())
    (part,) = shards(out, "design")
    mechanism = shoal.Mechanism.load(part.path)
    assert mechanism.times == max(counts.values()) == 23
    stated = run.card.design.delta
    assert stated <= 1e-5
    composed = shoal.privacy_curve([mechanism.output] * 23, mechanism.graph, 1.0, scope="table")
    assert composed.delta_upper <= stated
    with own_ledger(out) as ledger:
        spent = ledger.spent()
        assert {name: spent[name].releases for name in counts} == dict(counts)
        assert max(spent[name].spent for name in counts) <= stated
    assert run.card.design.query == "sample"
    assert run.card.guard is not None
    assert run.card.guard.rests_on_model


def test_rows_of_a_crowd_are_in_an_order_that_is_drawn(once: Path, tmp_path: Path) -> None:
    """Of any two members that follow each other by name, each comes first about as often."""
    run = go(tmp_path / "many", constants(250), replace(CONSTANTS, crowd=2, shard_size=1000))
    rows = run.released.sort("crowd", "label")
    before = rows.group_by("crowd", maintain_order=True).agg(pl.col("row").diff().drop_nulls().first() > 0)["row"]
    assert len(before) > 60
    assert abs(before.sum() - len(before) / 2) < 5.5 * np.sqrt(len(before)) / 2


def interrupted(out: Path, config: shoal.Config, monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], list[float]]:
    """A release that ends right after its first charge, before anything is written; what is on record."""
    with monkeypatch.context() as patch:
        stopped = on_call(1, shoal.Ledger.charge, KeyboardInterrupt(), after=True)
        patch.setattr(shoal.Ledger, "charge", stopped)
        with pytest.raises(KeyboardInterrupt):
            go(out, config=config)
    assert not (out / "released.csv").exists()
    return charged(out)


def test_a_second_call_releases_nothing(copied: Path) -> None:
    out = copied / "samples"
    before = (out / "released.csv").read_bytes()
    run = go(out, samples(), SAMPLES)
    assert run.did == []
    assert (out / "released.csv").read_bytes() == before
    with pytest.raises(shoal.InputError, match="has released, and this is another file"):
        go(out, samples(seed=1), SAMPLES)


def test_means_of_constants(tmp_path: Path) -> None:
    """One row per crowd, rounded to what it can mean; a new table of the same labels is in the same crowds."""
    out = tmp_path / "means"
    run = go(out, constants(), MEANS)
    assert run.card.kind == "averages"
    (other,) = [line for _, lines in run.summary() for line in lines if "would protect" in line]
    assert "every customer's figures" in other
    assert "kW" not in other
    public, owned = pl.read_csv(out / "public" / "released.csv"), run.released
    assert public.columns == ["crowd", "members", *COLUMNS]
    assert owned.columns == ["label", *public.columns]
    true = constants()
    both = owned.join(true, left_on="label", right_on="customer")
    for name in COLUMNS:
        spread = float(true[name].std())  # type: ignore[arg-type]
        for _, rows in both.group_by("crowd"):
            assert len(rows) >= 5
            assert rows["members"].to_list() == [len(rows)] * len(rows)
            # A base is at most two usual figures over the members, and a row is off by less than a base.
            np.testing.assert_allclose(rows[name].to_numpy(), rows[f"{name}_right"].mean(), atol=4 * spread / len(rows))
    twin = true.filter(pl.col("customer") == "C05").with_columns(customer=pl.lit("N1"))
    later = pl.concat([true, twin]).with_columns(pl.col("money") * 1.01).filter(pl.col("customer") != "C03")
    run = go(out, later, replace(MEANS, period="2024-02"), update=True)
    assert run.work.facts.people is not None
    assert run.work.facts.people.newcomers == 1
    crowd = dict(owned.select("label", "crowd").iter_rows())
    assert dict(run.released.select("label", "crowd").iter_rows()) == crowd
    again = pl.read_csv(out / "public" / "released.csv")
    assert again.select("crowd", "members").equals(public.select("crowd", "members"))
    with pytest.raises(shoal.InputError, match="needs a later period"):
        go(tmp_path / "other", later, replace(MEANS, period="2023-12", ledger=str(out / "ledger.db")))


def test_a_new_table_of_samples(copied: Path) -> None:
    """Crowds stay; who is new waits; a member without rows stays a neighbor, and nothing is released about it."""
    out = copied / "samples"
    with own_ledger(out) as ledger:
        ledger.budget(1.0, 0.9)
    before = dict(pl.read_parquet(out / "released.parquet").select("label", "crowd").unique().iter_rows())
    more = samples(6, seed=3).filter(pl.col("speaker") != "s2")
    run = go(out, more, replace(SAMPLES, period="2030-01", delta=0.009), update=True)
    owned = assert_released_as_charged(out)
    assert dict(owned.select("label", "crowd").unique().iter_rows()) == {k: v for k, v in before.items() if k != "s2"}
    left = pl.read_csv(out / "left_out.csv")
    assert left.columns == ["label", "reason"]
    assert set(left["label"]) == {"s4", "s5"}
    (part,) = shards(out, "design")
    mechanism = shoal.Mechanism.load(part.path)
    assert set(mechanism.graph.labels) == {"s0", "s1", "s2", "s3"}
    assert mechanism.graph.n_edges == 6
    assert run.work.facts.design is not None


def test_the_report_shows_columns(copied: Path) -> None:
    page = go(copied / "samples", until="report").report.read_text()
    assert 'class="panel' in page
    assert "2 columns" in page
    assert "kW" not in page


@pytest.mark.parametrize("form", ["csv", "parquet", "arrow", "pandas"])
def test_every_form_of_a_table_reads_the_same(form: str, once: Path, tmp_path: Path) -> None:
    frame, source = samples(), tmp_path / f"table.{form}"
    if form == "csv":
        frame.write_csv(source, separator=";")
    elif form == "parquet":
        frame.write_parquet(source)
    elif form == "arrow":
        frame.write_ipc(source)
    given = pytest.importorskip("pandas").DataFrame(frame.to_dict(as_series=False)) if form == "pandas" else source
    go(tmp_path / "out", given, SAMPLES, "fit")
    files = [[part.files for part in shards(out, "fit")] for out in (tmp_path / "out", once / "samples")]
    assert files[0] == files[1]


def test_a_long_table_has_an_entry_per_time(tmp_path: Path) -> None:
    """As forecasts come: one row per label and time."""
    rng = np.random.default_rng(0)
    wide = rng.normal(size=(8, 3))
    long = pl.DataFrame(
        {
            "unique_id": np.repeat([f"m{i}" for i in range(8)], 3),
            "ds": ["2024-01-01 02:00", "2024-01-01 00:00", "2024-01-01 01:00"] * 8,
            "Model": wide[:, [2, 0, 1]].ravel(),
        }
    )
    config = shoal.Config(label="unique_id", timestamp_column="ds", value_column="Model", crowd=4)
    run = go(tmp_path / "out", long, config)
    assert run.released.columns[-3:] == ["2024-01-01 00:00", "2024-01-01 01:00", "2024-01-01 02:00"]
    members = pl.read_parquet(tmp_path / "out" / "crowds.parquet").sort("label")
    np.testing.assert_array_equal(members["value"].to_numpy(), wide)


BAD = {
    "another column": ({"label": "nobody"}, lambda f: f, "the table has no column 'nobody'"),
    "text": ({"columns": ("kg", "comment")}, lambda f: f, "'comment' holds text"),
    "NaN": ({}, lambda f: f.with_columns(kg=pl.Series([float("nan"), *[1.5] * 25])), "'kg' holds NaN"),
    "infinity": ({}, lambda f: f.with_columns(kg=pl.Series([float("inf"), *[1.5] * 25])), "'kg' holds NaN or an inf"),
    "one label": ({}, lambda f: f.with_columns(customer=pl.lit("secret")), "all rows have one label"),
    "no label": ({}, lambda f: f.with_columns(customer=pl.lit(None, dtype=pl.String)), "26 row\\(s\\) have no label"),
    "no rows": ({}, lambda f: f.head(0), "no row has a number in every entry"),
    "no numbers": ({}, lambda f: f.select("customer", "comment"), "no numeric column"),
    "nothing differs": ({}, lambda f: f.select("customer", "one"), "one value in all rows"),
    "few": ({"crowd": 14}, lambda f: f.head(9), "9 labels can be used, and a crowd of 14 needs 14"),
    "own name": ({}, lambda f: f.rename({"kg": "crowd"}), "'crowd' is a column of the released table"),
    "name of a time": ({}, lambda f: f.rename({"kg": "step"}), "'step' is a column of the released table"),
    "forecasts": ({"query": "trajectory"}, lambda f: f, "query is for forecasts"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_tables_are_refused(case: str, tmp_path: Path) -> None:
    settings, change, words = BAD[case]
    frame = change(constants())
    with pytest.raises(shoal.InputError, match=words) as caught:
        go(tmp_path / "out", frame, CONSTANTS, **settings)  # type: ignore[arg-type]
    assert "C0" not in str(caught.value)
    assert "secret" not in str(caught.value)
    assert not (tmp_path / "out" / "released.csv").exists()
    assert not (tmp_path / "out" / "ledger.db").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: f.with_columns(z=2 * pl.col("x") - pl.col("y")), "is a combination of other columns"),
        (lambda f: f.with_columns(z=pl.col("speaker").str.tail(1).cast(pl.Int64)), "'z' is the same in all rows"),
        (lambda f: f.group_by("speaker").head(2), "too few for laws of 2 columns"),
        (lambda f: pl.concat([f, f.head(20)]), r"20 of \d+ rows repeat another"),
    ],
    ids=["collinear", "constant within labels", "few rows", "copies"],
)
def test_samples_without_a_law_are_refused(change: Any, words: str, tmp_path: Path) -> None:
    frame = change(samples())
    if words.startswith("too few"):
        frame = frame.filter(pl.int_range(pl.len()).over("speaker") < 1 + (pl.col("speaker") == "s0").cast(pl.Int64))
    with pytest.raises(shoal.InputError, match=words):
        go(tmp_path / "out", frame, SAMPLES, "design")


def test_rows_with_an_empty_cell_are_left_out(tmp_path: Path) -> None:
    frame = constants().with_columns(kg=pl.when(pl.col("customer") == "C07").then(None).otherwise(pl.col("kg")))
    run = go(tmp_path / "out", frame, replace(MEANS, columns=("-one",)))
    assert "C07" not in run.released["label"]
    assert "one" not in run.released.columns
    assert run.work.facts.people is not None
    assert any("1 row with an empty cell" in line for line in run.work.facts.people.about)
    assert any("empty cell" in one.sentence for one in run.card.statements if one.audience == "owner")
    assert not any("empty cell" in path.read_text() for path in (tmp_path / "out" / "public").iterdir())


def test_digits_are_no_longer_told_by_their_rows(tmp_path: Path) -> None:
    """A quadratic classifier, trained on one half of the released rows, names the other half no better than chance."""
    from sklearn.datasets import load_digits
    from sklearn.decomposition import PCA
    from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis

    images, digit = load_digits(return_X_y=True)
    rows = PCA(12, random_state=0).fit_transform(images)
    names = [f"pc{j}" for j in range(12)]
    frame = pl.DataFrame({"digit": digit, **dict(zip(names, rows.T, strict=True))})
    run = go(
        tmp_path / "digits",
        frame,
        shoal.Config(label="digit", epsilon=1.0, delta=1e-5, accept=("doubtful-law",)),
        "release",
    )
    released = run.released.sort("source_row").select(names).to_numpy()

    def named(values: Any) -> float:
        attacker = QuadraticDiscriminantAnalysis(reg_param=1e-3).fit(values[::2], digit[::2])
        return float(attacker.score(values[1::2], digit[1::2]))

    assert named(rows) > 0.9
    assert named(released) < 0.15
    assert run.work.facts.design is not None
    assert run.work.facts.design.delta <= 1e-5
    assert run.work.facts.design.not_gaussian == 10
    assert any("do not look Gaussian" in line for _, lines in run.summary(verbose=True) for line in lines)


def test_a_crowd_with_too_few_left_is_retired_and_its_rest_stays_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the ledger: silent members end a crowd, its rest waits as a block, and enters a crowd of newcomers."""
    monkeypatch.setattr("shoal.product.runs.crowd_rows.shuffle", range)  # a lot that does not keep the rules would wait
    rng = np.random.default_rng(0)
    settings = shoal.Config(label="who", crowd=4)
    out = tmp_path / "run"

    def release(names: list[str], period: str) -> tuple[dict[str, int], dict[str, str]]:
        frame = pl.DataFrame({"who": names, "x": rng.random(len(names)), "y": rng.random(len(names))})
        run = go(out, frame, replace(settings, period=period), "release", update=(out / "state.json").exists())
        with run.work.ledger as ledger:
            assert ledger.verify().ok
        left = pl.read_csv(out / "left_out.csv", infer_schema=False)
        return dict(run.released.select("label", "crowd").iter_rows()), dict(left.iter_rows())

    everyone = [f"h{i:02d}" for i in range(10)]
    first, _ = release(everyone, "2024-01")
    assert sorted(Counter(first.values()).values()) == [5, 5]
    number = first["h00"]
    crowd = sorted(name for name, c in first.items() if c == number)
    rest, gone = crowd[:3], crowd[3:]
    here = [name for name in everyone if name not in gone]
    second, _ = release(here, "2024-02")
    assert second == first  # two are silent: their last figures enter
    third, left = release(here, "2024-04")
    assert number not in third.values()
    assert {name for name, why in left.items() if "retired" in why} == set(rest)
    newcomers = [f"n{i:02d}" for i in range(10)]
    fourth, left = release([*here, *newcomers], "2024-05")
    [place] = {fourth[name] for name in rest}
    assert place not in first.values()
    assert sum(fourth[name] == place for name in newcomers) >= 4
    assert {fourth[name] for name in here if name not in rest} == set(first.values()) - {number}
    assert not left
    back, left = release([*everyone, *newcomers], "2024-06")
    assert {name: back[name] for name in fourth} == fourth
    assert set(left) == set(gone)
    assert all("retired while it was silent" in why for why in left.values())


def test_members_of_a_retired_rest_enter_their_new_crowd_with_their_own_figures(tmp_path: Path) -> None:
    """One of them is not there on that day; the crowd's record and row are of each member's own last figure."""
    old, new = [f"h{i:02d}" for i in range(18)], [f"n{i:02d}" for i in range(16)]
    kg = dict(zip([*old, *new], np.random.default_rng(2).normal(100, 10, 34).round(2).tolist(), strict=True))
    settings, out = shoal.Config(label="who", crowd=4), tmp_path / "run"

    def release(names: list[str], period: str) -> shoal.Run:
        frame = pl.DataFrame({"who": names, "kg": [kg[name] for name in names]})
        return go(out, frame, replace(settings, period=period), update=(out / "state.json").exists())

    crowd = dict(release(old, "2024-01").released.select("label", "crowd").iter_rows())
    rest = sorted(name for name in old if crowd[name] == crowd["h00"])[:3]
    here = [name for name in old if crowd[name] != crowd["h00"] or name in rest]
    release(here, "2024-02")
    release(here, "2024-04")
    tables = release([*(name for name in here if name != rest[0]), *new], "2024-05").work.tables
    members = tables.members.filter(~pl.col("waits"))
    assert set(rest) <= set(members["label"])
    for number, count, (row,), kept in tables.lasting_rows.select("crowd", "members", "values", "kept").iter_rows():
        fixed, inside = json.loads(kept), members.filter(pl.col("crowd") == number)
        own = [int.from_bytes(one, "little", signed=True) / 10 ** fixed["decimals"][0] for one in inside["stored"]]
        assert own == pytest.approx([kg[name] for name in inside["label"]])
        assert abs(count * row - sum(own)) <= count * float(fixed["bases"][0])


def test_a_row_that_is_there_twice_is_released_once(tmp_path: Path) -> None:
    """Rounded figures agree now and then; the same answer under fresh noise would be no independent release."""
    once_more = pl.concat([samples(), samples().head(1)])
    run = go(tmp_path / "run", once_more, SAMPLES)
    assert len(run.released) == len(samples())
    assert "1 row with the same figures as another of the label" in str(run.card.to_dict())
    rows = {row["kind"]: row for row in list_releases(run.work.ledger)}
    assert rows["answers"]["labels"] == 4


def test_other_figures_for_a_period_on_record_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost folder gets its rows again; other figures under the same names do not get the old rows in silence."""
    monkeypatch.setenv("SHOAL_LEDGER", str(tmp_path / "owner.db"))
    first = go(tmp_path / "first", constants(), MEANS)
    again = go(tmp_path / "again", constants(), MEANS)
    assert again.released.equals(first.released)
    other = constants().with_columns(pl.col("kg") + 100)
    with pytest.raises(shoal.InputError, match=r"on record for 2024-01-01.* other figures .*period='"):
        go(tmp_path / "other", other, MEANS)
    later = go(tmp_path / "later", other, replace(MEANS, period="2024-02"))
    assert float(later.released["kg"].to_numpy().mean()) > 50
