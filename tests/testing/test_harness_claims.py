"""Claims about Gaussian laws: dp_accounting's sigmas, and the command."""

import json
import math

import pytest
from benchmarks.harness import sigma_check

import shoal


def test_unsafe_sigmas_of_dp_accounting_are_refuted():
    """Its exact root of σ is rounded to either side; the variance here is rounded up, in its favor."""
    peer = pytest.importorskip("dp_accounting")
    verdicts = [
        sigma_check(peer.get_sigma_gaussian(e, d), e, d).verdict
        for e in (0.1, 0.5, 1.0, 3.0)
        for d in (1e-9, 1e-6, 1e-3)
    ]
    assert verdicts.count("refuted") >= 3
    assert verdicts.count("proved") >= 3


@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.1])
def test_our_own_sigma_is_proved(delta):
    sigma = shoal.analytic_sigma(1.0, 1.0, delta)
    assert sigma_check(sigma, 1.0, delta).verdict == "proved"
    assert sigma_check(math.nextafter(sigma, 0.0) * (1 - 1e-9), 1.0, delta).verdict == "refuted"


def test_both_ends_are_theorems_and_a_claim_between_them_is_undecided():
    classes = shoal.GaussianClasses([[0.0], [1.0]], [[[4.0]], [[5.0]]])
    graph = shoal.NeighborGraph.complete(classes.labels)
    wide = shoal.testing.check_claim(classes, graph, 1.0, 0.5)
    assert wide.verdict == "proved"
    assert wide.delta_lower <= float(shoal.privacy_curve(classes, graph, 1.0).delta_upper)
    assert wide.proof.n_edges == 1
    between = shoal.testing.check_claim(classes, graph, 1.0, wide.delta_lower)
    assert between.verdict == "undecided"
    assert "undecided" in str(between)
    table = shoal.testing.check_claim(classes, graph, 1.0, wide.delta_upper, scope="table")
    assert table.verdict == "refuted"
    with pytest.raises(shoal.InputError, match="delta must lie in"):
        shoal.testing.check_claim(classes, graph, 1.0, 2.0)


def test_the_command(tmp_path, capsys):
    from typer.testing import CliRunner

    from shoal.product.cli.main import app
    from shoal.proofs.checker import main as checker

    def prove(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["prove", *arguments])
        return done.exit_code, done.output

    laws = tmp_path / "laws.json"
    laws.write_text(
        json.dumps({"means": [[0.0], [1.0]], "variances": [13.69], "labels": ["a", "b"], "edges": [["b", "a"]]})
    )
    code, said = prove(str(laws), "--claim", "1:1.2e-5", "--json")
    assert code == 0
    answer = json.loads(said)
    assert answer["verdict"] == "proved"
    code, said = prove(str(laws), "--claim", "1:1.1e-5")
    assert code == 4
    assert "refuted" in said
    assert checker([str(tmp_path / "laws.proof.json"), str(tmp_path / "laws.laws.shoal")]) in (0, None)

    classes = shoal.GaussianClasses.deterministic([[0.0], [1.0]])
    graph = shoal.NeighborGraph.complete(classes.labels)
    shoal.design(classes, graph, "white", epsilon=1.0, rho=16.0).save(tmp_path / "white.shoal")
    assert prove(str(tmp_path / "white.shoal"), "--claim", "1:1e-5")[0] == 0
    for text, claim, message in (
        ('{"means": [[0]]}', "1:0.1", '"covs"'),
        ("no json", "1:0.1", "a mechanism file, or JSON"),
        ('{"means": [[0], [1]], "covs": [[1]]}', "1-0.1", "EPSILON:DELTA"),
        ('{"means": [[0], [1]], "covs": [[1]], "edges": [["0"]]}', "1:0.1", "two labels each"),
    ):
        laws.write_text(text)
        code, said = prove(str(laws), "--claim", claim)
        assert code == 2
        assert message in " ".join(said.split())
    assert prove(str(tmp_path), "--claim", "1:0.1")[0] == 2
