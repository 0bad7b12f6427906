"""Tests for mechanisms, ours or a stranger's: a kernel by its answers, a claim about Gaussian laws by a proof."""

from shoal.testing.claims import ClaimCheck as ClaimCheck
from shoal.testing.claims import check_claim as check_claim
from shoal.testing.kernels import MechanismCheck as MechanismCheck
from shoal.testing.kernels import check_mechanism as check_mechanism

__all__ = ["ClaimCheck", "MechanismCheck", "check_claim", "check_mechanism"]
