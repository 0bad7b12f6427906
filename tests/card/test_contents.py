"""What a report gathers: figures of the card, δ of every edge, and nothing more when it is public."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_page import write_report

import shoal
from shoal.card.card import ReleaseCard
from shoal.card.contents import Contents, gather
from shoal.card.digits import up
from shoal.card.exhibits import Exhibits
from shoal.card.privacy import BARS, curves, edge_deltas_upper, edges, frontier_section
from shoal.card.section import Section
from shoal.ledger.accounts import Account
from shoal.ledger.chain import Head
from shoal.ledger.verify import Verification


@pytest.fixture(scope="module")
def card(release: dict[str, Any]) -> ReleaseCard:
    found: ReleaseCard = release["card"]
    return found


@pytest.fixture(scope="module")
def shown(release: dict[str, Any]) -> Exhibits:
    found: Exhibits = release["forecasts"].exhibits(release["mechanism"], release["released"], release["truth"])
    parts = {name: release[name] for name in ("alternatives", "frontier", "timings")}
    return replace(found, **parts)


@pytest.fixture(scope="module")
def contents(card: ReleaseCard, shown: Exhibits) -> Contents:
    return gather(card, shown)


def _section(contents: Contents, key: str) -> Section:
    return next(section for section in contents.sections if section.key == key)


def test_every_part_is_there_and_is_plain_json(contents: Contents) -> None:
    keys = [section.key for section in contents.sections]
    expected = ["answers", "curves", "frontier", "edges", "accuracy", "attack", "model", "ledger", "timing", "limits"]
    assert keys == expected
    json.dumps(contents.to_dict(), allow_nan=False)


def test_the_curve_is_the_card_s(contents: Contents, release: dict[str, Any]) -> None:
    curve = release["card"].to_dict()["curve"]
    own, *others = _section(contents, "curves").plots[0]["series"]
    assert [p[0] for p in own["points"]] == curve["epsilon"]
    assert [p[1] for p in own["points"]] == curve["delta"]
    assert [p[2] for p in own["points"]] == [f"{d:.4g}" for d in curve["delta"]]
    assert [s["name"] for s in others] == ["no noise", "equal noise", "the paper's noise", "towards the center"]


def test_other_designs_are_their_released_curves_rounded_up(contents: Contents, release: dict[str, Any]) -> None:
    white = _section(contents, "curves").plots[0]["series"][2]
    exact = release["alternatives"]["white"].released_curve([p[0] for p in white["points"]]).delta_upper
    for (_, value, text), delta in zip(white["points"], exact, strict=True):
        assert value == delta
        assert delta <= float(text) <= delta * 1.002


def test_the_chosen_point_is_the_card_s(contents: Contents, release: dict[str, Any]) -> None:
    card = release["card"].to_dict()
    ((rho, delta, text),) = _section(contents, "frontier").plots[0]["series"][-1]["points"]
    assert rho == release["mechanism"].rho.max()
    assert (delta, text) == (card["guarantee"]["delta"], f"{card['guarantee']['delta']:.4g}")


def test_a_search_that_ran_out_of_time_is_told_beside_the_plot(release: dict[str, Any]) -> None:
    mechanism, graph = release["mechanism"], release["graph"]
    options = {"epsilon": 1.0, "time_limit": 1e-9}
    hurried = shoal.frontier(mechanism.classes, graph, ("white", "transport"), rho=[0.2], **options)
    card = release["card"]
    says = " ".join(frontier_section(card, Exhibits(frontier=hurried)).says)
    assert "of 1 of the 1 points of “transport”" in says
    assert "equal noise" not in says
    beside = {"white": hurried.mechanisms["white"][0], "transport": hurried.mechanisms["transport"][0]}
    assert "ended the search of transport:" in " ".join(curves(card, Exhibits(alternatives=beside)).says)
    assert "ended" not in " ".join(curves(card, Exhibits(alternatives={"white": beside["white"]})).says)


def test_a_drawn_answer_s_rounding_is_told(contents: Contents) -> None:
    assert any("double precision" in note for note in _section(contents, "limits").notes)


def test_edges_reach_the_promise_and_never_pass_it(contents: Contents, release: dict[str, Any]) -> None:
    mechanism = release["mechanism"]
    pairs, delta = edge_deltas_upper(mechanism)
    assert delta.shape == (len(pairs), 2)
    assert delta.max() == pytest.approx(mechanism.certificate.delta_upper, rel=1e-9)
    assert delta.max() <= release["card"].to_dict()["guarantee"]["delta"]
    exact = shoal.edge_deltas(mechanism.output, release["graph"], 1.0)
    assert (delta >= exact).all()
    cells = {}
    for plot in _section(contents, "edges").plots:
        cells |= {(plot["names"][a], plot["names"][b]): (value, text) for a, b, value, text in plot["cells"]}
    assert len(cells) == 2 * release["graph"].n_edges
    for (i, j), row in zip(release["graph"].edges, delta, strict=True):
        a, b = release["graph"].labels[i], release["graph"].labels[j]
        assert (cells[a, b][0], cells[b, a][0]) == tuple(row)
        assert float(cells[a, b][1]) >= row[0]


def test_the_worst_pair_comes_first(contents: Contents, release: dict[str, Any]) -> None:
    a, b = release["mechanism"].certificate.worst_edge
    assert {a, b} <= set(_section(contents, "edges").plots[0]["names"])
    homes = [plot["name"] for plot in _section(contents, "answers").plots]
    assert homes[:2] == [a, b]


def test_each_edge_has_its_own_epsilon() -> None:
    classes = shoal.GaussianClasses.deterministic([[0.0], [1.0], [2.0]])
    graph = shoal.NeighborGraph.from_edges(classes.labels, [("0", "1"), ("1", "2")])
    mechanism = shoal.design(classes, graph, method="white", epsilon=[0.5, 3.0], rho=1.0)
    _, delta = edge_deltas_upper(mechanism)
    one = shoal.edge_deltas(mechanism.output, graph, 0.5)[0]
    two = shoal.edge_deltas(mechanism.output, graph, 3.0)[1]
    assert delta == pytest.approx(np.stack([one, two]), rel=1e-9)


def test_large_groups_are_shown_by_their_worst_labels() -> None:
    classes = shoal.GaussianClasses.deterministic(np.linspace(0, 1, 80)[:, None])
    graph = shoal.NeighborGraph.complete(classes.labels)
    mechanism = shoal.design(classes, graph, method="white", epsilon=1.0, rho=4.0)
    (plot,) = edges(Exhibits(mechanism=mechanism), "label").plots
    assert plot["kind"] == "bars"
    assert len(plot["rows"]) == BARS
    values = [row["value"] for row in plot["rows"]]
    assert values == sorted(values, reverse=True)
    assert {plot["rows"][0]["name"], plot["rows"][1]["name"]} == {"0", "79"}


def test_a_large_group_in_which_all_are_alike_takes_one_bar() -> None:
    classes = shoal.GaussianClasses.deterministic(np.linspace(0, 1, 30)[:, None])
    graph = shoal.NeighborGraph.complete(classes.labels)
    mechanism = shoal.design(classes, graph, method="center", epsilon=1.0, rho=4.0)
    (plot,) = edges(Exhibits(mechanism=mechanism), "label").plots
    (row,) = plot["rows"]
    assert row["name"] == "each of the 30"
    assert row["value"] == pytest.approx(mechanism.certificate.delta_upper, rel=1e-9, abs=0)


def test_power_is_shown_in_kw(contents: Contents, release: dict[str, Any]) -> None:
    forecasts = release["forecasts"]
    for plot in _section(contents, "answers").plots[:5]:
        i = forecasts.households.index(plot["name"])
        drawn = {s["name"]: [p[1] for p in s["points"]] for s in plot["series"]}
        assert drawn["released"] == pytest.approx(np.exp(release["released"][i]))
        assert drawn["forecast"] == pytest.approx(forecasts.power[i])
        assert len(drawn["past day"]) == 96
        known = [(a, b) for a, b in zip(drawn["what came"], release["truth"][i], strict=True) if a is not None]
        assert [a for a, _ in known] == [b for _, b in known]


def test_accuracy_is_the_card_s_with_what_was_measured(contents: Contents, release: dict[str, Any]) -> None:
    card = release["card"].design.accuracy
    drawn = {s["name"]: [p[1] for p in s["points"]] for s in _section(contents, "accuracy").plots[0]["series"]}
    assert drawn["error that privacy adds"] == pytest.approx(card.rmse_by_entry, rel=1e-3)
    assert all(shown >= true for shown, true in zip(drawn["error that privacy adds"], card.rmse_by_entry, strict=True))
    assert drawn["its bias"] == pytest.approx(card.bias_by_entry, rel=1e-3)
    error = release["forecasts"].power - release["truth"]
    assert drawn["forecast against what came"] == pytest.approx(np.sqrt(np.nanmean(error**2, axis=0)))


def test_the_audit_stands_beside_the_promise(contents: Contents, release: dict[str, Any]) -> None:
    naming, by_epsilon = _section(contents, "attack").plots
    audit = release["card"].to_dict()["audit"]
    values = {row["name"]: row["value"] for row in naming["rows"]}
    assert values["attack achieved"] == audit["naming"]["accuracy"]
    assert values["promised at most"] == release["card"].to_dict()["identification"]["success_upper"]
    promised, proved = ({p[0]: p[1] for p in s["points"]} for s in by_epsilon["series"])
    assert promised == {e: up(delta) for e, delta in release["card"].design.curve}
    assert all(delta <= min(p for e, p in promised.items() if e <= at) for at, delta in proved.items())


def test_ledger_state_is_shown_on_the_safe_side(card: ReleaseCard, shown: Exhibits) -> None:
    account = Account(name="label H0001", epsilon=1.0, budget=1e-3, spent=1.23456e-4, releases=2)
    intact = Verification(ok=True, entries=7, head=Head(7, "0" * 64))
    section = _section(gather(card, replace(shown, accounts=(account,), verification=intact)), "ledger")
    (row,) = section.plots[0]["rows"]
    assert row["text"] == "0.0001235 of 0.001 at ε = 1"
    assert "7 entries, intact" in section.says[-1]
    broken = replace(intact, ok=False, problem="entry 3 was altered")
    assert "NOT intact" in _section(gather(card, replace(shown, verification=broken)), "ledger").says[-1]


def test_missing_parts_say_how_to_get_them(required: dict[str, Any]) -> None:
    contents = gather(required["card"], Exhibits())
    assert "shoal.frontier" in _section(contents, "frontier").missing
    assert "shoal.audit" in _section(contents, "attack").missing
    assert "shoal.model_guard" in _section(contents, "model").missing
    assert "shoal.Ledger" in _section(contents, "ledger").missing
    assert not any(section.key == "timing" for section in contents.sections)
    assert _section(contents, "answers").heading == "Released answers"


def test_no_meaningful_guarantee_is_said_plainly(release: dict[str, Any]) -> None:
    contents = gather(shoal.release_card(release["alternatives"]["white"]), Exhibits())
    assert not contents.meaningful
    assert next(tile.answer for tile in contents.summary if tile.tone == "bad") == "No meaningful guarantee"
    assert _section(contents, "limits").notes[0].startswith("No meaningful guarantee")


def test_public_holds_neither_names_nor_answers(release: dict[str, Any]) -> None:
    contents = gather(release["card"], title="Public")
    text = json.dumps(contents.to_dict(), ensure_ascii=False)
    assert not any(name in text for name in release["graph"].labels)
    assert {section.key for section in contents.sections} == {
        "curves", "accuracy", "attack", "model", "ledger", "limits"
    }  # fmt: skip
    # Every number in a public plot is in the card.
    known = set()

    def collect(value: Any) -> None:
        if isinstance(value, dict):
            for item in value.values():
                collect(item)
        elif isinstance(value, list):
            for item in value:
                collect(item)
        elif isinstance(value, float | int):
            known.add(float(value))

    collect(release["card"].to_dict())
    total = release["card"].to_dict()["model"]["checks"]["of"]
    shares = {count / total for count in range(total + 1)}
    for section in contents.sections:
        for plot in section.plots:
            shown = [row["value"] for row in plot.get("rows", [])]
            shown += [p[1] for s in plot.get("series", []) for p in s["points"]]
            assert set(shown) <= known | shares


def test_public_does_not_depend_on_what_is_private(release: dict[str, Any], tmp_path: Path) -> None:
    other = release | {"released": release["released"] + 1.0, "truth": release["truth"] * 2, "frontier": None}
    one, two = (
        write_report(tmp_path / f"{i}.html", **given, public=True).read_bytes()
        for i, given in enumerate((release, other))
    )
    assert one == two


def test_a_part_of_a_release_is_said_to_be_a_part(card: ReleaseCard, shown: Exhibits) -> None:
    contents = gather(card, replace(shown, scope="the hardest of 40 groups"))
    for key in ("curves", "frontier", "edges", "answers", "accuracy"):
        assert any("of the hardest of 40 groups" in sentence for sentence in _section(contents, key).says), key
