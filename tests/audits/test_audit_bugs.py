"""Each seeded bug is caught; the number of released answers per label that it takes is part of the test."""

from __future__ import annotations

from dataclasses import replace

import audit_cases as cases
import numpy as np
import pytest

import shoal
from shoal.audits.attacks import seeded_release


def kinds(found: tuple[object, ...]) -> set[str]:
    return {f.kind for f in found}  # type: ignore[attr-defined]


def test_total_rho_drawn_where_per_entry_was_certified():
    mechanism = cases.constants()
    wrong = cases.instead(mechanism, noise_cov=mechanism.noise_cov / 3)
    result = shoal.audit(mechanism, n_samples=1000, release=wrong)
    assert result.verdict == "violated"
    assert {"certificate", "too little spread"} <= kinds(result.violations)
    assert result.delta_lower.max() > mechanism.certificate.delta_upper


def test_per_entry_drawn_where_total_rho_was_certified_is_no_violation():
    mechanism = cases.constants()
    wrong = cases.instead(mechanism, noise_cov=mechanism.noise_cov * 3)
    assert shoal.audit(mechanism, n_samples=1000, release=wrong).verdict == "consistent"


def test_one_direction_left_out_of_the_certificate():
    """δ(1) is 0.388 from the wide law to the narrow one and 0.023 back; the certificate knows the second only."""
    classes = shoal.GaussianClasses([[0.0], [0.0]], [[[9.0]], [[1.0]]])
    mechanism = cases.design(classes, "none", 1e-9)
    small = float(shoal.edge_deltas(mechanism.output, mechanism.graph, 1.0).min())
    vars(mechanism)["certificate"] = replace(mechanism.certificate, delta=small, delta_upper=small * 1.001)
    result = shoal.audit(mechanism, n_samples=1000)
    attacked = [f for f in result.violations if f.kind == "certificate"]
    assert [f.labels for f in attacked] == [("0", "1")]
    assert attacked[0].evidence["delta at least"] > 5 * attacked[0].evidence["promised"]
    assert "accounting" in kinds(result.violations)


def test_covariance_of_two_labels_swapped():
    mechanism = cases.random_laws()
    swapped = mechanism.noise_cov[[1, 0, 2, 3]]
    result = shoal.audit(mechanism, n_samples=5000, release=cases.instead(mechanism, noise_cov=swapped), seed=1)
    assert result.verdict == "violated"
    assert "too little spread" in kinds(result.violations)
    assert {f.labels for f in result.violations if f.kind == "too little spread"} <= {(), ("0",), ("1",)}


@pytest.mark.parametrize("extra", [(1.0, 1.5), (1.5, 1.0)])
def test_more_noise_for_one_of_two_labels_that_were_made_alike(extra):
    """No label has too little noise, and still the two can be told apart: only the attack on the pair sees it."""
    classes = shoal.GaussianClasses.deterministic(np.zeros((2, 2)))
    mechanism = cases.design(classes, "white", 1.0)
    wrong = cases.instead(mechanism, noise_cov=np.array([e * np.eye(2) for e in extra]))
    result = shoal.audit(mechanism, n_samples=2000, release=wrong, seed=1)
    assert "edge" in kinds(result.violations)
    assert "too little spread" not in kinds(result.violations)


def test_one_noise_vector_for_every_release():
    mechanism = cases.random_laws()
    fixed = np.random.default_rng(3).standard_normal((1, 3))
    release = cases.with_normals(mechanism, lambda m, label: np.tile(fixed, (m, 1)))
    result = shoal.audit(mechanism, n_samples=1000, release=release, seed=1)
    assert "too little spread" in kinds(result.violations)


def test_the_same_noise_for_every_label():
    """As from a generator that starts from the same seed for each label: every single law is right."""
    mechanism = cases.random_laws()
    release = cases.with_normals(mechanism, lambda m, label: np.random.default_rng(m).standard_normal((m, 3)))
    result = shoal.audit(mechanism, n_samples=1000, release=release, seed=1)
    assert kinds(result.violations) == {"dependence"}


@pytest.mark.parametrize("later", [0, 1])
def test_noise_used_for_two_successive_releases(later):
    mechanism = cases.random_laws()
    rng = np.random.default_rng(4)

    def twice(m, label):
        return np.repeat(rng.standard_normal((m // 2 + 2, 3)), 2, axis=0)[later : m + later]

    result = shoal.audit(mechanism, n_samples=2000, release=cases.with_normals(mechanism, twice), seed=1)
    reused = [f for f in result.violations if f.kind == "dependence"]
    assert [f.labels for f in reused] == [("0",), ("1",), ("2",), ("3",)]
    assert {f.evidence["steps between"] for f in reused} == {1}


@pytest.mark.parametrize("batch", [7, 640, 1001])
def test_noise_of_a_batch_used_again_for_the_next(batch):
    mechanism = cases.constants()
    rng = np.random.default_rng(5)

    def table(m, label):
        return np.tile(rng.standard_normal((batch, 3)), (m // batch + 1, 1))[:m]

    result = shoal.audit(mechanism, n_samples=2002, release=cases.with_normals(mechanism, table), seed=1)
    reused = [f for f in result.violations if f.kind == "dependence" and len(f.labels) == 1]
    assert len(reused) == 4
    assert all(f.evidence["steps between"] % batch == 0 for f in reused)
    assert all(f.evidence["correlation"] > 0.3 for f in reused)


def test_as_in_paper_releases():
    """The point forecast is released, the prediction error is accounted for: what is random is the noise alone."""
    rng = np.random.default_rng(6)
    steps = 0.3 * np.tril(np.ones((4, 4)))
    means = rng.standard_normal((3, 4)) * 0.3
    classes = shoal.GaussianClasses(means, [v * steps @ steps.T for v in (1.0, 1.3, 0.8)], ["a", "b", "c"])
    mechanism = cases.design(classes, "white", 0.1)
    released = seeded_release(mechanism, 7)
    honest = shoal.audit(mechanism, n_samples=4000, release=released, seed=1)
    forecasts = dict(zip(mechanism.labels, means, strict=True))
    paper = shoal.audit(
        mechanism,
        n_samples=4000,
        release=lambda q, label: released(np.tile(forecasts[label], (len(q), 1)), label),
        seed=1,
    )
    assert honest.verdict == "consistent"
    assert {"certificate", "too little spread"} <= kinds(paper.violations)


@pytest.mark.parametrize(("make", "needed"), [(cases.constants, 3000)])
def test_five_percent_too_little_variance(make, needed):
    mechanism = make()
    wrong = cases.instead(mechanism, noise_cov=0.95 * mechanism.noise_cov)
    result = shoal.audit(mechanism, n_samples=needed, release=wrong, seed=1)
    assert "too little spread" in kinds(result.violations)
    assert result.delta_lower.max() < mechanism.certificate.delta_upper  # an attack alone does not see it


def test_a_shift_left_out_is_found_by_the_attacks():
    classes = shoal.GaussianClasses(np.array([[0.0, 0.0], [1.0, 1.0]]), np.eye(2))
    mechanism = cases.design(classes, "transport", 0.4)
    wrong = cases.instead(mechanism, shift=0.0 * mechanism.shift)
    result = shoal.audit(mechanism, n_samples=2000, release=wrong, seed=1)
    assert "certificate" in kinds(result.violations)
