"""What a run would refuse is not offered; and the figures printed are about what an analyst can hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from live import SETTINGS

import shoal
from shoal.errors import ShoalError
from shoal.service.questions import QuestionService


def test_a_second_table_from_the_same_readings_is_refused_and_not_offered(tmp_path: Path) -> None:
    """Eight homes, then the same and one more: the second table would give the ninth away."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    readings = shoal.simulate_meters(9, 8, step_minutes=60, seed=1)
    homes = readings["household"].unique(maintain_order=True).to_list()
    for name, few in (("eight", homes[:8]), ("nine", homes)):
        file = tmp_path / f"{name}.csv"
        readings.filter(readings["household"].is_in(few)).write_csv(file)
        run = shoal.Run(tmp_path / "runs" / name, file, ledger=url, method="codebook", **SETTINGS)
        if name == "eight":
            run.everything("release")
        else:
            with pytest.raises(ShoalError):
                run.everything("release")
    with shoal.Ledger.open(url) as ledger:
        catalog = QuestionService(ledger, tmp_path / "runs").catalog
        assert [question.title for question in catalog.questions.values()] == ["eight"]
        assert "released nothing yet" in catalog.left_out["nine"]


def test_figures_are_those_of_the_table(desk: QuestionService) -> None:
    (question,) = desk.catalog.questions.values()
    books = [shoal.load(path) for path in (question.run.path / "mechanism").glob("*.shoal")]
    assert books
    assert question.statement.epsilon is not None
    for book in books:
        reached = book.released_curve(question.statement.epsilon, scope="table").delta_upper
        assert np.max(reached) <= (question.statement.delta or 0.0)
        assert question.statement.epsilon >= 2 * (book.answer_epsilon or 0.0)  # and no ε below it would do
    assert question.statement.sentence.startswith("For who holds the whole table")
    assert question.statement.to_json()["scope"] == "table"
