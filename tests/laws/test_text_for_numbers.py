"""Text is no number, wherever a number is expected."""

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


def test_what_is_no_mechanism_is_refused():
    for nothing in (None, "white.shoal"):
        with pytest.raises(shoal.InputError, match="mechanism must be a Mechanism or a Codebook"):
            shoal.audit(nothing)
