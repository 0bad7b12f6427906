"""The public names, and what importing them costs."""

import subprocess
import sys
from importlib import import_module

import pytest

import shoal


def test_all_equals_what_is_bound():
    for name in shoal.__all__:
        getattr(shoal, name)
    bound = {n for n, v in vars(shoal).items() if not n.startswith("_") and getattr(v, "__module__", "") != "typing"}
    modules = {n for n in bound if type(getattr(shoal, n)).__name__ == "module"}
    assert bound - modules - {"annotations", "import_module"} == set(shoal.__all__)
    assert set(shoal.__all__) <= set(dir(shoal))


@pytest.mark.parametrize("name", sorted(shoal._HOME))
def test_every_name_lives_where_it_says(name):
    value = getattr(import_module(shoal._HOME[name]), name)
    assert getattr(shoal, name) is value
    assert value.__module__ == shoal._HOME[name]
    assert value.__doc__


def test_the_contract_is_exported():
    accounting = {"privacy_curve", "edge_deltas", "epsilon_at", "renyi_curve", "identification_risk"}
    deterministic = {"sensitivity", "analytic_sigma"}
    assert {"GaussianClasses", "NeighborGraph", "ShoalError"} | accounting | deterministic <= set(shoal.__all__)


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="no_such_name"):
        shoal.no_such_name  # noqa: B018


def test_import_loads_no_heavy_package():
    code = "import sys, shoal; print(sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for heavy in ("numba", "scipy", "polars", "pandas", "matplotlib", "sklearn", "opendp"):
        assert f"'{heavy}'" not in loaded


def test_errors_are_value_errors():
    for name in ("InputError", "CertificationError", "UnreachableError"):
        assert issubclass(getattr(shoal, name), shoal.ShoalError)
    assert issubclass(shoal.ShoalError, ValueError)
