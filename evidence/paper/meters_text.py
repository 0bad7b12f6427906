"""The household study for a reader: its table on the terminal, its files in a folder."""

from __future__ import annotations

import json
from pathlib import Path

from evidence.paper import figures, stated
from evidence.paper.lines import CONVENTIONS, as_text, shown, write_rows
from evidence.paper.meters_study import MetersStudy

#: How the paper's words may be read: (name, query, convention).
READINGS = tuple(
    (f"{name}, budget {convention}", query, convention)
    for query, name in (("as_in_paper", "season in"), ("no_season", "season out"))
    for convention in CONVENTIONS
)


def text(study: MetersStudy) -> str:
    """Tables of what the paper states beside what is found."""
    sizes = ", ".join(map(str, study.cluster_sizes))
    return "\n".join(
        [
            f"{study.n_households} households ({study.source}), clusters of {sizes}; {study.n_edges} pairs; "
            f"forecast from {study.origin:%Y-%m-%d %H:%M}.",
            "\nδ that the paper states (one-sided PDP) and ours by each reading of its words: worst pair (median pair)",
            _stated(study),
            "\nHockey-stick δ at ε = 1 with the paper's method: claimed by its query covariance, and true of the point",
            "forecast that is released with the same noise: worst pair (median pair). The claim is NOT a guarantee.",
            _query_error(study),
            "\nHockey-stick δ at ε = 1 of the worst pair, budget per entry; query `trajectory` unless it says point",
            _ours(study),
            "\nNormalized mean squared error at ρ = 0.45 in total, the paper's method (it states "
            + ", ".join(f"{x:.4e}" for x in stated.NMSE)
            + ")",
            _homes(study),
            f"\nδ = 0 is affordable from ρ = {study.perfect['trajectory']:.3g} (trajectory) or "
            f"{study.perfect['point']:.3g} (point) per entry on.",
        ]
    )


def _pair(study: MetersStudy, epsilon: float, **wanted: object) -> str:
    worst, median = (study.lines.at(epsilon, edges=edges, **wanted) for edges in ("worst", "median"))
    return f"{shown(worst)} ({shown(median)})"


def stated_rows(study: MetersStudy) -> list[dict[str, object]]:
    """One record per δ that the paper states and per reading of its words."""
    rows: list[dict[str, object]] = []
    for said in _within(study):
        for name, query, convention in READINGS:
            wanted = {"query": query, "convention": convention, "method": said.method, "notion": "pdp"}
            found = {
                e: study.lines.at(said.epsilon, edges=e, budget=said.budget, **wanted) for e in ("worst", "median")
            }
            rows.append(
                {"method": said.method, "budget": said.budget, "epsilon": said.epsilon, "stated": said.delta,
                 "reading": name, **found}
            )  # fmt: skip
    return rows


def _within(study: MetersStudy) -> list[stated.StatedDelta]:
    return [s for s in stated.DELTAS if any(abs(s.budget - b) < 1e-9 for b in study.budgets)]


def _stated(study: MetersStudy) -> str:
    header = ["method, budget, ε", "stated", *(name for name, _, _ in READINGS)]
    rows = []
    for said in _within(study):
        cells = [
            _pair(
                study, said.epsilon, query=query, convention=convention, method=said.method, budget=said.budget,
                notion="pdp",
            )
            for _, query, convention in READINGS
        ]  # fmt: skip
        rows.append([f"{said.method}, {said.budget:.4g}, {said.epsilon:g}", f"{said.delta:g}", *cells])
    return as_text(header, rows)


def _query_error(study: MetersStudy) -> str:
    kinds = (("as_in_paper", "as_released", "season in"), ("no_season", "no_season_released", "season out"))
    header = ["budget per entry", *(f"{kind}, {name}" for _, _, name in kinds for kind in ("claimed", "true"))]
    rows = []
    for budget in study.budgets:
        cells = [
            _pair(study, 1.0, query=query, convention="per entry", method="paper", budget=budget, notion="dp")
            for claimed, true, _ in kinds
            for query in (claimed, true)
        ]
        rows.append([f"{budget:.4g}", *cells])
    return as_text(header, rows)


def _ours(study: MetersStudy) -> str:
    columns = (
        ("white", "as_in_paper"), ("paper", "as_in_paper"), ("center", "trajectory"), ("covariance", "trajectory"),
        ("additive", "trajectory"), ("transport", "trajectory"), ("white", "as_released"), ("center", "point"),
        ("additive", "point"),
    )  # fmt: skip
    names = [m + (" (point)" if q in ("as_released", "point") else "") for m, q in columns]
    rows = []
    for i, budget in enumerate(study.budgets):
        cells = []
        for method, query in columns:
            found = study.lines.pick(query=query, method=method, convention="per entry", budget=budget, notion="dp")
            cells.append(shown(float(found[0].worst[-1])) if found else "")
        bounds = [study.lower_bounds[c][i] for c in reversed(CONVENTIONS)]
        rows.append([f"{budget:.4g}", *cells, *(f"{int(1000 * b) / 1000:.3f}" for b in bounds)])
    return as_text(["budget", *names, "least possible", "and if total"], rows)


def _homes(study: MetersStudy) -> str:
    header = ["home", "in ln W", "in kW", "forecast against truth"]
    rows = [
        [str(i), f"{h.nmse_log_watts:.3g}", f"{h.nmse_kw:.3g}", f"{h.nmse_truth:.3g}"]
        for i, h in enumerate(study.homes, start=1)
    ]
    return as_text(header, rows)


def write(study: MetersStudy, out: Path) -> tuple[Path, ...]:
    """Figures, tables and everything as JSON into a folder."""
    out.mkdir(parents=True, exist_ok=True)
    files = []
    if study.homes:
        title = f"Twelve steps ahead, ρ = {study.budgets[0]:.2g} in total ({study.source})"
        files.append(figures.save(figures.homes_figure(study.homes, title), out / "meters_forecasts.png"))
    drawn = figures.meters_figure(study.lines, study.budgets)
    files.append(figures.save(drawn, out / "meters_curves.png"))
    second = float(study.budgets[1])
    panels = [
        ("season in, {} per entry", "as_in_paper", "as_released", "per entry"),
        ("season out, {} in total", "no_season", "no_season_released", "total"),
        ("season out, {} per entry", "no_season", "no_season_released", "per entry"),
    ]
    named = [(title.format(f"{second:.4g}"), *rest, second) for title, *rest in panels]
    files.append(figures.save(figures.queries_figure(study.lines, named), out / "meters_queries.png"))
    curves, said, everything = out / "meters_curves.csv", out / "meters_stated.csv", out / "meters.json"
    study.lines.write_csv(curves)
    write_rows(said, stated_rows(study))
    everything.write_text(json.dumps(study.to_dict(), indent=1), encoding="utf-8")
    return (*files, curves, said, everything)
