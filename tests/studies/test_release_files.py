"""Seeded bugs are found in the files of a release by the attack alone; honest files are green; levels hold."""

from __future__ import annotations

import ast
import itertools
import json
import math
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import seeded_bugs as bugs
from scipy import stats
from seeded_bugs import Released
from typer.testing import CliRunner

import shoal
from shoal.errors import UnreachableError
from shoal.product.card.package import build_package as PACKAGE
from shoal.product.cli.main import app
from shoal.product.studies import p_values
from shoal.product.studies import release_files as attack

SOURCE = Path(shoal.__file__).parent
#: Honest releases of these tests are drawn anew each time: an alarm by chance, 5 in 100 for a user, is none here.
RARELY = 1e-9


@pytest.fixture(autouse=True)
def no_alarms_by_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """``shoal attack DIR`` and ``attack_run`` at the level of these tests; a run's own check names its own."""
    monkeypatch.setattr("shoal.product.runs.release_check.attack_files", partial(attack.attack_files, level=RARELY))


@pytest.mark.parametrize(("module", "own"), [("release_files", {"", ".findings"}), ("p_values", set())])
def test_the_attack_shares_no_code_with_what_it_attacks(module: str, own: set[str]) -> None:
    """NumPy, SciPy, Python's own modules, a driver of PostgreSQL, the p_values, and the value that a finding is."""
    tree = ast.parse((SOURCE / f"product/studies/{module}.py").read_text(encoding="utf-8"))
    names = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names |= {one.name for node in ast.walk(tree) if isinstance(node, ast.Import) for one in node.names}
    assert {name for name in names if name.startswith("shoal")} == {f"shoal.product.studies{name}" for name in own}
    assert all(one.name == "p_values" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
               and node.module == "shoal.product.studies" for one in node.names)  # fmt: skip
    rest = {name.split(".")[0] for name in names} - {"shoal"}
    assert rest <= {"numpy", "scipy", "psycopg", *sys.stdlib_module_names}


# ---------------------------------------------------------------------- honest files and planted bugs


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Released:
    return bugs.make_table(tmp_path_factory.mktemp("first") / "run")


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Released:
    return bugs.make_table(tmp_path_factory.mktemp("second") / "run", twice=True)


@pytest.fixture(scope="module")
def meters(tmp_path_factory: pytest.TempPathFactory) -> Released:
    """The second day of 24 homes in crowds of five and more."""
    out = tmp_path_factory.mktemp("meters") / "run"
    every, settings = shoal.simulate_meters(24, 18, seed=1), {"workers": "serial", "cores": 1}
    before = pl.col("timestamp") < every["timestamp"].min() + pl.duration(days=16)
    shoal.run(every.filter(before), out, crowd=5, horizon=4, order=(2, 1), train_days=14, **settings)
    shoal.run(every.filter(~before), out, update=True, **settings)
    return bugs.released(out)


def alarms(one: Released, level: float = attack.ALARM, *, package: bool = True) -> tuple[str, ...]:
    return attack.attack_files(one.files, one.record, level=level, package=package).alarms


def test_honest_files_are_green(first: Released, second: Released, meters: Released) -> None:
    for one in (first, second, meters):
        found = attack.attack_files(one.files, one.record, level=1e-4)
        assert found.alarms == ()
        assert found.not_looked_at == ()
        assert len(found.findings) >= 3
        assert all(p > 1e-4 for p in found.chances.values())


def test_what_is_planted_is_made_as_a_run_makes_it(first: Released, second: Released, meters: Released) -> None:
    """Without a bug the editing of these tests gives the table of the run, so that it is the bug which is found."""
    for one in (first, second, meters):
        again = bugs.remade(one, dict(one.record.crowds))
        assert again.files.public["released.csv"] == one.files.public["released.csv"]
        assert alarms(again, 1e-4) == ()


OF_TABLES: dict[Callable[[Released], Released], str] = {
    bugs.crowd_of_nine: "fewer members",
    bugs.rows_by_name: "not sorted",
    bugs.numbers_by_name: "order of names",
    bugs.numbers_by_level: "order of levels",
    bugs.trace_in_digits: "rows that are not the mean on record",
    bugs.finer_base: "base finer",
    bugs.unanimous: "diversity",
    bugs.unknown_yes_or_no: "diversity",
    bugs.offset_not_added: "rows that are not the mean on record",
    bugs.no_offset: "not uniform",
    bugs.dominated: "dominance",
    bugs.two_columns_as_one: "dominance",
    bugs.key_in_a_column: "columns that no release has",
    bugs.hashed_key: "columns that no release has",
    bugs.name_on_a_page: "names of members",
    bugs.size_follows_absence: "size that is not that of the set",
    bugs.size_on_record_too: "size that is not that of the set",
    bugs.times_of_writing: "times that are not those of the rows",
    bugs.file_per_crowd: "files that no release has",
    bugs.statement_of_another: "statement about another kind",
    bugs.larger_promise: "record does not bear out",
    bugs.another_table: "not the one on record",
    bugs.blanks: "blanks",
    bugs.two_crowds: "more than one crowd",
    bugs.retired_handle: "handles of retired crowds",
}
OF_SERIES: dict[Callable[[Released], Released], str] = {
    bugs.change_of_one: "change of one member",
    bugs.enters_alone: "change of one member",
    bugs.moved_away: "members that are not those of the release before",
    bugs.exchanged: "members that are not those of the release before",
    bugs.handle_again: "handles of retired crowds",
    bugs.new_offsets: "not those of the release before",
}
OF_METERS = (
    bugs.crowd_of_nine, bugs.trace_in_digits, bugs.offset_not_added, bugs.key_in_a_column, bugs.name_on_a_page,
    bugs.size_follows_absence, bugs.size_on_record_too, bugs.another_table, bugs.retired_handle, bugs.times_of_writing,
)  # fmt: skip


@pytest.mark.parametrize("bug", OF_TABLES, ids=lambda bug: bug.__name__)
def test_bugs_in_a_table(first: Released, bug: Callable[[Released], Released]) -> None:
    found = alarms(bug(first))
    assert any(OF_TABLES[bug] in one for one in found), found


@pytest.mark.parametrize("bug", OF_SERIES, ids=lambda bug: bug.__name__)
def test_bugs_in_a_second_release(second: Released, meters: Released, bug: Callable[[Released], Released]) -> None:
    for one in (second, meters):
        found = alarms(bug(one))
        assert any(OF_SERIES[bug] in words for words in found), found


@pytest.mark.parametrize("bug", OF_METERS, ids=lambda bug: bug.__name__)
def test_bugs_in_rows_of_meters(meters: Released, bug: Callable[[Released], Released]) -> None:
    planted = meters if bug is not bugs.crowd_of_nine else _larger(meters)
    assert alarms(bug(planted))


def _larger(one: Released) -> Released:
    """The same, where ten members were promised."""
    crowds = {n: replace(c, setting=c.setting | {"m": 10}) for n, c in one.record.crowds.items()}
    return one._replace(record=replace(one.record, crowds=crowds))


# ---------------------------------------------------------------------- honest releases that look odd


def _streets(folder: Path, n: int) -> str:
    """Boundaries: two streets of 36 people, everybody else lives alone."""
    streets = ["A"] * 36 + ["B"] * 36 + [f"s{i}" for i in range(n - 72)]
    pl.DataFrame({"person": [f"P{i:04d}" for i in range(n)], "street": streets}).write_csv(folder / "streets.csv")
    return f"{folder / 'streets.csv'}:street"


def _odd_table(case: str, folder: Path) -> tuple[pl.DataFrame, dict[str, Any]]:
    """A table that an honest owner may have, and settings."""
    settings: dict[str, Any]
    frame, settings = bugs.people(300 if "boundaries" in case else 60), {"crowd": 5}
    called = {"P0000": "time zone", "P0001": "5 households", "P0002": "members of a crowd", "P0003": "bonus, CHF 2024",
              "P0004": "Europe/Zurich", "P0005": "1e-05", "P0006": "sha256", "P0007": "2024-01-01T00:00"}  # fmt: skip
    if case == "columns":
        frame = frame.rename({"age": "income, CHF", "salary": "x ", "smokes": " x", "bonus": "timestamps"})
    elif case == "names":
        frame = frame.rename({"bonus": "bonus, CHF 2024"}).with_columns(pl.col("person").replace(called))
        settings |= {"title": "A survey of P0008 and P0009, begun 2023-05-01 10:00", "licence": "P0010 4.0"}
    elif case.startswith("figures"):
        frame = frame.with_columns(pl.col("salary") * float(case.split()[1]))
    else:
        settings, rng, inside = {"boundaries": _streets(folder, 300), "crowd": 6}, np.random.default_rng(0), 72
        both = np.append(rng.choice([0.0, 1.0], inside), rng.normal(0, 3, 300 - inside).round(2))
        frame = frame.select("person", a=rng.gamma(2, 2, 300).round(2), both=both)
    return frame, settings


@pytest.mark.parametrize("case", ["columns", "names", "figures 1e15", "figures 1e-18", "few inside boundaries"])
def test_an_honest_table_is_not_stopped(case: str, tmp_path: Path) -> None:
    frame, settings = _odd_table(case, tmp_path)
    out = tmp_path / "run"
    shoal.run(frame, out, label="person", period="2024-01", workers="serial", cores=1, **settings)
    assert shoal.attack_run(out).alarms == ()


def test_declared_columns_with_commas_are_not_stopped(tmp_path: Path) -> None:
    frame = bugs.people(60).rename({"age": "age, years", "salary": "x "})
    shoal.run(frame, tmp_path / "run", label="person", secret="readings", customers=100, epsilon=1.0, period="2024-01",
              bounds=("age, years=0:1e17", "x =0:10000"), workers="serial", cores=1)  # fmt: skip
    assert shoal.attack_run(tmp_path / "run").alarms == ()


@pytest.mark.parametrize("days", [1.0, 1.5])
def test_homes_that_moved_in_are_not_stopped(days: float, tmp_path: Path) -> None:
    """Used for the last days of training alone: what is released has taken the place of the day that the base is of."""
    every = shoal.simulate_meters(14, 16, step_minutes=60, seed=14)
    since = pl.col("timestamp") > every["timestamp"].max() - timedelta(days=days)
    empty = 0.02 + 0.002 * pl.col("kw").clip(0, 5)
    every = every.with_columns(kw=pl.when(since).then(pl.col("kw") + 0.3).otherwise(empty).round(3))
    every.write_parquet(tmp_path / "meters.parquet")
    shoal.run(tmp_path / "meters.parquet", tmp_path / "run", crowd=10, horizon=24, order=(1, 1), train_days=15,
              workers="serial", cores=1)  # fmt: skip
    assert shoal.attack_run(tmp_path / "run").alarms == ()


def test_a_finer_base_of_meters_is_found(meters: Released) -> None:
    """From the hours that were not released, which are those of the usual day."""
    crowds = {n: replace(c, period=c.kept["from"]) for n, c in meters.record.crowds.items()}
    honest = meters._replace(record=replace(meters.record, crowds=crowds, before={}, first=True))
    assert not any("base finer" in words for words in alarms(honest, package=False))
    assert any("base finer" in words for words in alarms(bugs.finer_base(honest), package=False))


def test_no_name_stops_a_release(first: Released, meters: Released) -> None:
    """Every word of public texts, and each two together, is a name that nothing is concluded from."""
    for one in (first, meters):
        look = attack.FileChecks(one.files, replace(one.record, stated="person"))
        text = attack.UNSEEN.sub(" ", "\n".join(content.decode() for content in one.files.public.values()))
        words = re.findall(r"[^\s,;:\"'<>=()\[\]{}|/*`]+", text)
        names = {*words, *(" ".join(pair) for pair in itertools.pairwise(words))}
        told = [name for name in names if not look.is_explained(name)]
        digests = {*re.findall(r"[0-9a-f]{12,64}", text)}
        assert [name for name in told if not {*re.findall(r"\w+", name)} & digests] == []
        assert not look.is_explained("P0007")
        assert not look.is_explained("Anna Meierhofer")


def test_columns_of_a_table_that_are_called_like_those_of_meters() -> None:
    content = b"crowd,members,step,timestamp,kw\n7,5,1.5,2.5,3.5\n"
    table = attack.PublicTable(content, of_meters=False)
    assert (table.columns, table.figures(7), table.faults) == (["step", "timestamp", "kw"], ["1.5", "2.5", "3.5"], [])


def test_a_table_of_another_form_is_an_alarm_without_a_figure(meters: Released) -> None:
    rows = bugs.lines(meters.files.public["released.csv"])
    rows[1][2] = "17.25"
    files = replace(meters.files, public=dict(meters.files.public) | {"released.csv": bugs.written(rows)})
    found = attack.attack_files(files, meters.record).alarms
    assert any("another form" in words for words in found)
    assert "17.25" not in str(found)


# ---------------------------------------------------------------------- rows under a method


def stating(one: Released, delta: float = 0.9, epsilon: float = 1.0) -> Released:
    """With a card that states (ε, δ)."""
    card = json.dumps({"guarantee": {"epsilon": epsilon, "delta": delta}}).encode()
    return Released(replace(one.files, public=dict(one.files.public) | {"card.json": card}), one.record)


def test_honest_answers_are_green() -> None:
    one = stating(bugs.answers())
    found = attack.attack_files(one.files, one.record, level=1e-3, package=False)
    assert found.alarms == found.not_looked_at == ()
    assert [finding.question for finding in found.findings] == ["singling out"] * 2
    assert found.findings[1].tests == 300  # a coin for each pair of members
    assert 0.5 < found.findings[1].figure < found.findings[1].bound == pytest.approx(1 / (1 + math.exp(-1)))


def renumbered(one: Released, rank: Callable[[str], object]) -> Released:
    """Rows of a crowd in the order of something about their members."""
    head, *rows = bugs.lines(one.files.owner)
    place = {}
    for crowd in {row[1] for row in rows}:
        inside = sorted({row[0] for row in rows if row[1] == crowd}, key=rank)  # type: ignore[arg-type]
        place |= {name: str(i) for i, name in enumerate(inside, 1)}
    owner = [[row[0], row[1], place[row[0]], *row[3:]] for row in rows]
    table = sorted((row[1:] for row in owner), key=lambda row: [int(cell) for cell in row[:3]])
    return bugs.sealed(one, bugs.written([head[1:], *table]), bugs.written([head, *owner]))


def test_rows_numbered_by_name() -> None:
    found = alarms(renumbered(bugs.answers(), str), package=False)
    assert any("rows numbered by name" in words for words in found)


def test_rows_told_apart() -> None:
    """Ten times less noise than (1, δ) asks for, on record as it was drawn: the coins of one table show it."""
    one = bugs.answers(noise=0.02)
    laws = replace(one.record.laws[0], covs=one.record.laws[0].covs * 0.02**2)
    laws = replace(laws, constant=False)  # so that δ is not recomputed from them
    found = alarms(stating(one._replace(record=replace(one.record, laws=(laws,))), 1e-5), package=False)
    assert any("told apart" in words for words in found)


@pytest.mark.parametrize(("noise", "names"), [(0.8, True), (1.0, False), (1.2, True)])
def test_the_size_of_the_noise(noise: float, names: bool) -> None:
    found = alarms(bugs.answers(240, noise=noise), package=False)
    assert any("noise of another size" in words for words in found) is names


def test_figures_that_are_not_the_answers_on_record() -> None:
    one = bugs.trace_in_digits(bugs.answers(60))
    assert any("not the answers on record" in words for words in alarms(one, package=False))


@pytest.mark.parametrize(("methods", "wrong"), [(("transport", "mean"), False), (("mean",), False), (("white",), True)])
def test_a_stated_method_is_on_record_or_was_answered_with_the_mean(methods: tuple[str, ...], wrong: bool) -> None:
    """A design for several crowds may answer one with its mean; a mechanism of another kind is none of them."""
    one = bugs.answers(60)
    laws = tuple(replace(one.record.laws[0], method=method) for method in methods)
    look = attack.FileChecks(one.files, replace(one.record, laws=laws))
    card = {"guarantee": {"epsilon": laws[0].epsilon}, "mechanism": {"method": "transport"}}
    look.check_statement({"guarantee": {"statement": ""}}, card)
    assert bool(look.alarms) is wrong


def test_a_statement_of_less_than_was_spent() -> None:
    """δ of the worst pair of constants is recomputed from Φ; half of it is too little."""
    one = bugs.answers(60)
    laws = one.record.laws[0]
    i, j = laws.edges.T
    mu = math.sqrt(2 * ((laws.means[i] - laws.means[j]) ** 2).sum(axis=1).max())
    true = stats.norm.cdf(mu / 2 - 1 / mu) - math.e * stats.norm.cdf(-mu / 2 - 1 / mu)
    for share, wrong in ((1.0, False), (0.5, True)):
        found = alarms(stating(one, true * share), package=False)
        assert any("δ is above" in words for words in found) is wrong


def test_rows_of_two_releases() -> None:
    """New lots each time are a guess; the same place in both is not."""
    before, now = bugs.answers(seed=1), bugs.answers(seed=1, noise=1.0)
    honest = renumbered(now, lambda name: np.random.default_rng(int(name[1:])).random())
    for one, alike in ((honest, False), (now, True)):
        files = replace(one.files, earlier=(before.files.public["released.csv"], before.files.owner))
        found = attack.attack_files(files, one.record, package=False)
        assert any("as in the last release" in words for words in found.alarms) is alike
        linked = [finding for finding in found.findings if finding.question == "linkability"]
        assert (linked[0].figure > 0.9) is alike


# ---------------------------------------------------------------------- readings


@pytest.fixture(scope="module")
def readings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("readings") / "run"
    shoal.run(bugs.people(300), out, label="person", secret="readings", customers=300, epsilon=1.0, workers="serial",
              bounds=("age=0:100", "salary=0:10000"), cells=("age=30,40,50,60",), period="2024-01")  # fmt: skip
    return out


def test_readings(readings: Path) -> None:
    found = shoal.attack_run(readings)
    assert found.alarms == ()
    assert len(found.not_looked_at) == 2
    one = bugs.released(readings)
    vector, plan = (json.loads(one.files.public[name]) for name in ("noisy.json", "plan.json"))
    for part, words in (
        ({"noisy.json": vector[1:]}, "not the one on record"),
        ({"plan.json": plan | {"plan": plan["plan"] | {"variance": plan["plan"]["variance"] * 0.64}}}, "δ above"),
        ({"plan.json": plan | {"series": plan["series"] | {"delta": 1e-9}}}, "δ of the series"),
    ):
        public = {name: json.dumps(content).encode() for name, content in part.items()}
        planted = bugs.sealed(one, one.files.public["released.csv"], public=public)
        assert any(words in alarm for alarm in alarms(planted)), words


# ---------------------------------------------------------------------- a run is stopped, a folder is attacked


def test_a_run_is_stopped_before_anything_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from shoal.product.runs import crowd_rows

    monkeypatch.setattr(crowd_rows, "draw_offset", lambda n: 0)
    with pytest.raises(UnreachableError, match="secret offsets that are not uniform"):
        bugs.make_table(tmp_path / "run", 300)
    assert not (tmp_path / "run" / "public").exists()


def test_a_package_with_a_name_in_it_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from shoal.product.runs.kinds import kind

    monkeypatch.setattr(kind, "build_package", lambda *a, **k: {**PACKAGE(*a, **k), "README.txt": b"see P0007"})
    with pytest.raises(UnreachableError, match="names of members in public files"):
        bugs.make_table(tmp_path / "run", 60)
    assert [path.name for path in (tmp_path / "run" / "public").iterdir()] == ["released.csv"]


def test_a_folder_is_attacked(second: Released, tmp_path: Path) -> None:
    out = tmp_path / "run"
    bugs.make_table(out, 60, twice=True)
    found = shoal.attack_run(out)
    assert found.alarms == found.not_looked_at == ()
    assert "No alarm" in str(found)
    assert json.loads(json.dumps(found.to_dict()))["members"] == 60
    assert {finding.question for finding in found.findings} == {"singling out", "linkability"}
    sheets = ["--out", str(tmp_path / "sheets")]
    honest = CliRunner().invoke(app, ["attack", str(out), *sheets])
    assert honest.exit_code == 0, honest.output
    assert "No alarm" in honest.output
    assert (tmp_path / "sheets" / "attack.html").is_file()
    page = out / "public" / "report.html"
    page.write_text(page.read_text() + "P0007")
    assert CliRunner().invoke(app, ["attack", str(out), *sheets]).exit_code == 4
    assert any("names of members" in words for words in shoal.attack_run(out).alarms)
    with pytest.raises(shoal.InputError, match="shoal run"):
        shoal.attack_run(tmp_path)


def test_what_is_not_known_is_said(second: Released, tmp_path: Path) -> None:
    """Without the release before, changes are not looked at; a later release hides what entered this one."""
    record = replace(second.record, before=None)
    found = attack.attack_files(second.files, record, level=RARELY)
    assert len(found.not_looked_at) == 2
    assert found.alarms == ()
    later = attack.attack_files(second.files, replace(second.record, later=True))
    assert "have released since" in later.not_looked_at[0]


# ---------------------------------------------------------------------- levels and p_values


def test_odds_are_exact() -> None:
    assert p_values.binomial_tail(3, 10, 0.2) == pytest.approx(stats.binom.sf(2, 10, 0.2), rel=1e-12)
    assert p_values.binomial_interval(3, 10) == pytest.approx(
        tuple(stats.binomtest(3, 10).proportion_ci(0.95)), rel=1e-9
    )
    for n in (2, 3, 4, 5):
        orders = list(itertools.permutations(range(n)))
        fixed = [sum(a == i for i, a in enumerate(order)) for order in orders]
        mixed = [sum(a > b for a, b in itertools.combinations(order, 2)) for order in orders]
        most = n * (n - 1) // 2
        for hits in range(n + 1):
            share = np.mean([one >= hits for one in fixed])
            assert p_values.fixed_points_p_value(hits, [n]) == pytest.approx(share, rel=1e-12, abs=1e-300)
        for order, seen in zip(orders, mixed, strict=True):
            least = min(seen, most - seen)
            share = 2 * np.mean([one <= least for one in mixed])
            assert p_values.sortedness_p_value([order]) == pytest.approx(min(share, 1.0), rel=1e-12)


def test_the_order_of_many_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is never below the exact p_values, and close in the tail."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        order = np.argsort(np.arange(40) + rng.normal(size=40) * rng.choice([5, 20, 60])).tolist()
        exact = p_values.sortedness_p_value([order])
        with monkeypatch.context() as patch:
            patch.setattr(p_values, "EXACT_PAIRS", 0)
            bound = p_values.sortedness_p_value([order])
        assert exact <= bound * (1 + 1e-9)
        assert bound < 1e-3 or exact > 1e-6


def test_one_run_odds() -> None:
    """Against the program of Steinke, Nasr and Jagielski (2023), appendix D, written out; pure ε is the binomial."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        guesses = int(rng.integers(1, 300))
        coins, epsilon, delta = (
            guesses + int(rng.integers(0, 50)),
            float(rng.random() * 3),
            float(10 ** rng.uniform(-9, -2)),
        )
        right = int(rng.integers(0, guesses + 1))
        q, total, worst = 1 / (1 + math.exp(-epsilon)), 0.0, 0.0
        for i in range(1, right + 1):
            total += stats.binom.pmf(right - i, guesses, q)
            worst = max(worst, total / i)
        expected = min(stats.binom.sf(right - 1, guesses, q) + 2 * worst * delta * coins, 1.0)
        assert p_values.one_run_p_value(right, guesses, coins, epsilon, delta) == pytest.approx(expected, rel=1e-8)


def test_power_as_it_is_stated() -> None:
    """An excess that is said to be seen is seen in 95 of 100 draws, and a little less is not."""
    excess = p_values.detectable_excess(620, 1 / 12, 0.025)
    least = next(v for v in range(621) if p_values.binomial_tail(v, 620, 1 / 12) <= 0.025)
    assert stats.binom.sf(least - 1, 620, 1 / 12 + excess) == pytest.approx(0.95, abs=1e-6)
    assert 0.045 < excess < 0.046


@pytest.mark.slow
def test_an_excess_of_five_points_on_600_homes_is_found() -> None:
    """5 points more homes than by chance have the row of their rank by name: found in 95 of 100 tables."""
    found = excess = 0.0
    for seed in range(100):
        one = bugs.answers(seed=seed, k=1, leak=0.055)
        seen = attack.attack_files(one.files, one.record, package=False)
        found += any("rows numbered by name" in words for words in seen.alarms)
        excess += seen.findings[0].figure - seen.findings[0].guess
    assert 0.045 < excess / 100 < 0.053
    assert found >= 95


@pytest.mark.slow
def test_honest_releases_raise_few_alarms() -> None:
    """Of 200 honest tables at most the stated share has an alarm (4 deviations)."""
    number = 0
    for seed in range(200):
        one = bugs.answers(240, seed=1000 + seed, k=2)
        number += bool(attack.attack_files(one.files, one.record, package=False).alarms)
    assert number <= 200 * attack.ALARM + 4 * math.sqrt(200 * attack.ALARM)


@pytest.mark.slow
def test_honest_runs_raise_few_alarms(tmp_path: Path) -> None:
    """The same of 60 runs over tables, whole packages."""
    number = 0
    for seed in range(60):
        one = bugs.make_table(tmp_path / "run", 120, seed=seed)
        number += bool(alarms(one))
        shutil.rmtree(tmp_path / "run")
    assert number <= 60 * attack.ALARM + 4 * math.sqrt(60 * attack.ALARM)
