"""What several tests of the report share."""

from __future__ import annotations

from typing import Any

import shoal

#: A label that tries everything.
NASTY = "</script><img src=x onerror=\"document.title='caught'\">{{script}}&amp;" + "wide" * 40


def hostile() -> dict[str, Any]:
    """Arguments of ``write_report`` for three labels, one of which is up to no good."""
    classes = shoal.GaussianClasses.deterministic([[0.0, 1.0], [1.0, 1.5], [0.5, 0.5]], labels=[NASTY, "ben", "cleo"])
    graph = shoal.NeighborGraph.complete(classes.labels)
    mechanism = shoal.design(classes, graph, method="white", epsilon=1.0, rho=1.0)
    card = shoal.release_card(mechanism, unit=NASTY)
    released = mechanism.release(classes.means, list(classes.labels))
    return {
        "mechanism": mechanism,
        "graph": graph,
        "card": card,
        "released": released,
        "timings": {NASTY: 1.0},
        "title": NASTY,
    }
