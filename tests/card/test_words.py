"""What real runs say, in the first place where an operator looks, and that what is drawn agrees with it."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from card_cases import NASTY
from sklearn.datasets import load_breast_cancer

import shoal
from shoal.product.card.promises import KNOWS
from shoal.product.card.render import board_page, card_markdown, owner_report, public_page, regulator_annex, summary
from shoal.product.card.statements import FIGURES, HEADINGS, SUMMARY
from shoal.product.runs.kinds.averages import kept_rules
from shoal.readings.publication import PublicSettings, plan_in_series

GREEK = re.compile("[\u0370-\u03ff]")
TINY = re.compile(r"\d[\d.]*e-(?:09|[1-9]\d)", re.IGNORECASE)


def words(page: str) -> str:
    """What a page shows, as running text."""
    page = re.sub(r"<(script|style)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).replace("`", "").split())


def documents(run: shoal.Run) -> dict[str, str]:
    """Everything that a default run writes for people."""
    paths = run.explain("Planning a feeder")
    pages = {path.name: path.read_text() for path in (*paths, run.path / "report.html", run.path / "card.md")}
    public = {name: (run.path / "public" / name).read_text() for name in ("report.html", "README.txt", "card.md")}
    return pages | {f"public/{name}": text for name, text in public.items()}


def test_a_default_run_has_no_greek_and_no_tiny_figure(means: shoal.Run) -> None:
    texts = documents(means) | {"summary": str(means.summary()), "all": str(means.summary(verbose=True))}
    for name, text in texts.items():
        shown = words(text) if name.endswith(".html") else " ".join(text.split())
        for promise in (means.card.statement, "ε = 0, δ = 0 inside a crowd"):  # the ladder's sentence and its figure
            shown = shown.replace(promise, "")
        assert not GREEK.search(shown), name
        assert not TINY.search(re.sub(r"\b[0-9a-f]{16,}\b", "", shown)), name
        assert not re.search(r"\b(certificate|certified|proof|proved)\b", shown), name


def test_the_summary_has_six_parts_and_more_on_request(means: shoal.Run) -> None:
    brief = means.summary()
    assert [heading for heading, _ in brief] == [HEADINGS[key] for key in SUMMARY]
    said = dict(brief)
    assert re.search(r"At least 4 households share each row: 60 households in \d+ crowds", said["Protected"][0])
    price = r"miss the metered load by [\d.]+ kW on average; unprotected forecasts .* [\d.]+ kW \([\d.]+ times\)"
    assert re.search(price, said["Accuracy"][0])
    assert "without protection" in said["Attack"][0]
    assert "public" in said["Share"][0]
    assert "ledger" in said["Keep private"][0]
    everything = dict(means.summary(verbose=True))
    assert {"Files", "Time", "Ledger", "Not protected"} <= set(everything)


def test_who_knows_the_others_is_said_wherever_an_operator_reads(means: shoal.Run) -> None:
    """Finding 10."""
    assert KNOWS in dict(means.summary())["Attack"]
    sentence = FIGURES.replace("`", "")
    for name, text in documents(means).items():
        shown = words(text) if name.endswith(".html") else " ".join(text.replace("`", "").split())
        assert sentence in shown, name


def test_the_price_is_rounded_as_a_ratio(means: shoal.Run) -> None:
    """Finding 12: 1.014, not the 1.1 of 0.32 over 0.31."""
    card = means.card
    before, after = card.later_errors
    assert before is not None
    assert after is not None
    stated = card.to_dict()["price"]
    assert after / before <= stated <= 1.01 * after / before
    assert f"{stated:.3g} times" in card.to_markdown()
    assert "% off" not in str(means.summary())


def test_the_naming_bound_of_a_codebook_comes_first_in_words(certified: shoal.Run) -> None:
    """Finding 13."""
    bound = certified.card.to_dict()["identification"]
    first = dict(certified.summary())[HEADINGS["hidden"]][0]
    assert re.search(r"at most [\d.]+ % of the time; a guess is right [\d.]+ % of the time", first)
    stated = float(re.search(r"within its crowd, at most ([\d.]+) %", first)[1])  # type: ignore[index]
    assert stated >= 100 * bound["success_upper"] * (1 - 1e-3) > 100 * bound["guessing"]
    text = certified.card.to_markdown()
    assert text.index("within its crowd, at most") < text.index("20.1 times")
    assert "within its crowd, at most" in text.splitlines()[2]  # the headline
    page = words((certified.path / "report.html").read_text())
    assert page.index("within its crowd, at most") < page.index("20.1 times")


def test_the_attack_is_on_the_rows_of_this_release(means: shoal.Run) -> None:
    assert means.card.kind == "averages"  # no codebook unasked
    assert means.work.kind.word == "averages"
    attack = means.card.attack
    assert attack is not None
    assert attack.labels == 60
    assert attack.before == 1.0  # every home's own figures are its own
    assert 0 <= attack.after <= attack.guessing + 1e-12  # rows of a crowd are one row
    sizes = means.released.group_by("household").first()["members"].to_numpy()
    assert attack.guessing == pytest.approx((1 / sizes).mean())


def test_what_is_drawn_agrees_with_its_text(means: shoal.Run, certified: shoal.Run) -> None:
    """Every bar is as long as the figure beside it says, and the figure stands in the text."""
    for run in (means, certified):
        page = (run.path / "report.html").read_text()
        tables = re.findall(r'<table class="bars">.*?</table>', page, flags=re.DOTALL)
        assert tables
        deltas = {delta for _, delta in run.card.design.curve} if run.card.design else set()
        assert ('id="curve"' in page) is (len(deltas) > 1)  # what has nothing to show is not drawn
        for table in tables:
            bars = re.findall(
                r'width="([\d.]+)" height="10" data-value="([\d.e+-]+)"/></svg></td><td class="text">([^<]+)<', table
            )
            longest = max(float(value) for _, value, _ in bars)
            for width, value, text in bars:
                assert float(text.split()[0]) == float(value)
                assert float(width) == pytest.approx(100 * float(value) / longest, abs=0.006)
        before = re.search(r'<section id="before".*?</section>', page, flags=re.DOTALL)
        assert before is not None
        shown = words(before[0])
        for figure in re.findall(r'<td class="text">([^<]+)</td>', before[0]):
            assert shown.count(figure) >= 2, figure  # beside its bar, and in the sentence
    assert "heat" not in page


def test_every_household_is_in_the_page_once_per_crowd(means: shoal.Run) -> None:
    page = (means.path / "report.html").read_text()
    listed = [unescape(name) for name in re.findall(r'<li data-name="([^"]*)"', page)]
    assert sorted(listed) == sorted(means.released["household"].unique().to_list())
    numbers = [int(n) for n in re.findall(r'<figure class="panel[^"]*" data-crowd="(\d+)"', page)]
    assert sorted(numbers) == sorted(means.released["crowd"].unique().to_list())
    costs = [float(c) for c in re.findall(r"members, off by ([\d.]+) kW", page)[::2]]
    assert costs == sorted(costs, reverse=True)


def test_a_hostile_name_is_text(means: shoal.Run) -> None:
    page = (means.path / "report.html").read_text()
    assert NASTY not in page
    assert "<img" not in page
    assert unescape(re.search(r'data-name="([^"]*onerror[^"]*)"', page)[1]) == NASTY  # type: ignore[index]
    for name, text in documents(means).items():
        assert name == "report.html" or "onerror" not in text, name


def test_the_board_page_is_short_and_the_annex_has_its_chapters(means: shoal.Run) -> None:
    pages = documents(means)
    assert len(words(pages["board.html"]).split()) < 580
    headings = re.findall(r"<h2>\d+\. ([^<]+)</h2>", pages["annex.html"])
    assert headings == [
        "Data", "Purpose", "Technique", "Singling out", "Linkability", "Inference", "Residual risk", "Evidence",
    ]  # fmt: skip
    assert "Planning a feeder" in pages["annex.html"]
    for name in ("board.html", "annex.html"):
        assert "H0001" not in pages[name]
    assert not re.search(r"(?<![-\w])--[a-z]", words(pages["board.html"])), "a board types no options"
    assert "The readings' promise adds noise and protects figures." in words(pages["board.html"])
    assert "The readings' promise would protect every household's readings" in words(pages["board.html"])
    assert "About the time from 2024-01-17, 12:00 on." in words(pages["board.html"])


#: What a regulator's rule is about here: of a single step, one home may have most.
LOAD = " of the load over the horizon"


def test_a_regulators_rule_is_never_named_without_what_it_is_about(means: shoal.Run) -> None:
    """A row is a crowd at a step; one home had 95 % of the load at 02:00 in a table that named 15/15."""
    texts = {path.name: path.read_text() for path in (means.path / "public").iterdir()} | documents(means)
    assert f"4/80{LOAD}" in texts["card.md"]
    for name, text in texts.items():
        shown = words(text) if name.endswith(".html") else " ".join(text.split())
        assert len(re.findall("15/15|4/80", shown)) == len(re.findall(f"(?:15/15|4/80){LOAD}", shown)), name
        assert "of a row's load" not in shown, name


def test_accuracy_is_named_as_outside_of_what_rows_hide(means: shoal.Run) -> None:
    """It is one more figure computed from the members' own: over ten crowds and more, with two digits."""
    said = "It is computed from members' own figures, over all crowds, and has two digits (a ratio three); what rows"
    assert said in means.card.to_markdown()
    known, none = means.card.release, replace(means.card.release, crowds=9)
    assert known.crowds >= 10
    assert said not in replace(means.card, release=none).to_markdown()


def test_the_insiders_figure_is_of_one_column_and_no_least(means: shoal.Run) -> None:
    text = means.card.to_markdown()
    assert "A row times its `members` is the total of figures that entered" in text, "a held one's is older"
    assert "An unbiased estimate from the rows of one column has a standard deviation of" in text
    assert "near copies of the column, and other knowledge about the member, can do better" in text
    assert "Over all releases together" not in text
    assert "exclude values" not in text, "meters have no protected columns"
    table = replace(means.card, fit=replace(means.card.fit, protected=("smokes",)))
    assert "the crowds themselves, and which figures are withheld, can exclude values" in table.to_markdown()


@pytest.mark.parametrize(
    ("members", "of_meters", "share", "rules"),
    [
        (15, True, 0.15, (f"15/15{LOAD}", f"4/80{LOAD}", "five devices")),
        (15, True, None, (f"4/80{LOAD}", "five devices")),
        (14, True, 0.15, (f"4/80{LOAD}", "five devices")),
        (3, True, None, ()),
        (15, False, None, ("five devices",)),  # a few-valued column has no dominance
        (100, False, None, ("five devices", "100 accounts")),
    ],
)
def test_rules_are_stated_where_they_are_kept_whatever_the_figures(
    members: int, of_meters: bool, share: float | None, rules: tuple[str, ...]
) -> None:
    assert kept_rules(members, of_meters=of_meters, largest_share=share) == rules


def test_a_law_that_rows_reject_is_refused_and_said(tmp_path: Path) -> None:
    """Finding 11: benign or malignant, 30 figures that are nothing like Gaussian."""
    data = load_breast_cancer(as_frame=True)
    table = data.frame.iloc[:, [0, 3, 13, 23]].assign(diagnosis=data.target.map({0: "malignant", 1: "benign"}))
    given = {"label": "diagnosis", "crowd": 2, "epsilon": 1.0, "delta": 1e-3, "method": "center"}
    with pytest.raises(shoal.UnreachableError, match="accept='doubtful-law'"):
        shoal.run(table, tmp_path / "refused", **given)
    run = shoal.run(table, tmp_path / "accepted", accept=("doubtful-law",), **given)
    assert run.card.doubtful
    assert any("THE LAW IS DOUBTFUL" in line for _, lines in run.summary() for line in lines)
    figure = next(one.figure for one in run.card.statements if one.key == "guarantee")
    assert "δ" not in figure
    attack = run.card.attack
    assert attack is not None
    assert attack.guessing == pytest.approx(np.bincount(data.target).max() / len(data.target))
    assert 0 < attack.after <= 1
    assert sum("a held-out one" in one.sentence for one in run.card.statements) == 1


def test_the_readings_promise_goes_through_the_same_pieces() -> None:
    plan, series = plan_in_series(500, epsilon=1.0, make=partial(shoal.noisy_crowds_plan, typical_kw=1.5))
    card = shoal.ReleaseCard.from_settings(
        PublicSettings(plan, series, "2024-01-16T18:00:00", "2024-01-17", "2024-01-16T18:00", 60.0, 6)
    )
    assert (card.kind, card.secret) == ("readings", "readings")
    assert card.statement == "This table protects every home's readings, against someone who knows all others."
    for text in (
        card_markdown(card),
        owner_report(card),
        public_page(card),
        board_page(card),
        regulator_annex(card),
        str(summary(card)),
    ):
        assert "protects every home" in text
        assert "2.72 times as likely" in text
    assert "500 customers" in card.to_markdown()
    assert card.to_dict()["delta_replaced"] == plan.delta(1.0, "replace")
