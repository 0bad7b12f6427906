"""Other libraries' mechanisms: confirmed as they are, found out where their sensitivity is understated."""

import pytest
from benchmarks.harness import checked, peer_cases


@pytest.mark.parametrize("share", [1.0, 0.7])
def test_opendp_and_diffprivlib(share):
    pytest.importorskip("opendp")
    verdicts = {case[0]: checked(case, n=3000).verdict for case in peer_cases(share) if case[5] in (0.0, 1e-3)}
    assert set(verdicts.values()) == {"consistent" if share == 1.0 else "violated"}
