"""Other libraries' mechanisms: confirmed as they are, found out where their sensitivity is understated."""

import pytest
from benchmarks.harness import checked, peer_cases


@pytest.mark.parametrize(("share", "n", "verdict"), [(1.0, 3000, "consistent"), (0.6, 6000, "violated")])
def test_opendp_and_diffprivlib(share, n, verdict):
    """Their noise takes no seed: a confidence of 1 − 1e-6 and noise far too small leave nothing to luck."""
    pytest.importorskip("opendp")
    cases = [case for case in peer_cases(share) if case[5] in (0.0, 1e-3)]
    assert {checked(case, n, confidence=1 - 1e-6).verdict for case in cases} == {verdict}
