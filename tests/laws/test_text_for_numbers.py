"""Text is no number, wherever a number is expected."""

import numpy as np
import pytest

import shoal

CLASSES = shoal.GaussianClasses.deterministic([[0.0], [1.0]])
GRAPH = shoal.NeighborGraph.complete(CLASSES.labels)


@pytest.mark.parametrize(
    "call",
    [
        lambda: shoal.design(CLASSES, GRAPH, "white", epsilon="1", rho=1.0),
        lambda: shoal.design(CLASSES, GRAPH, "white", epsilon=1.0, rho="1"),
        lambda: shoal.calibrate(CLASSES, GRAPH, "white", epsilon="1", delta=1e-3),
        lambda: shoal.privacy_curve(CLASSES.with_noise(1.0), GRAPH, ["0.5", "1"]),
        lambda: shoal.codebook(CLASSES.means, GRAPH, epsilon="1"),
        lambda: shoal.prove(CLASSES.with_noise(1.0), GRAPH, epsilon="1"),
        lambda: shoal.GaussianClasses([["0.0"], ["1.0"]], [[1.0]]),
    ],
)
def test_text_is_refused(call):
    with pytest.raises(shoal.InputError, match=r"(epsilon|rho|means) must be a number"):
        call()


@pytest.mark.parametrize("epsilon", [True, np.array("1"), np.True_, 1 + 0j, [True]])
@pytest.mark.parametrize(
    "call",
    [
        lambda epsilon: shoal.privacy_curve(CLASSES.with_noise(1.0), GRAPH, epsilon),
        lambda epsilon: shoal.design(CLASSES, GRAPH, "white", epsilon=epsilon, rho=1.0),
        lambda epsilon: shoal.prove(CLASSES.with_noise(1.0), GRAPH, epsilon=epsilon),
        lambda epsilon: shoal.analytic_sigma(1.0, epsilon, 1e-5),
        lambda epsilon: shoal.noisy_crowds_plan(500, epsilon, typical_kw=1.0),
    ],
)
def test_what_is_no_number_is_refused_everywhere_alike(call, epsilon):
    with pytest.raises(shoal.InputError, match="epsilon must be a number"):
        call(epsilon)


def test_what_is_no_mechanism_is_refused():
    for nothing in (None, "white.shoal"):
        with pytest.raises(shoal.InputError, match="mechanism must be a Mechanism or a Codebook"):
            shoal.audit(nothing)
