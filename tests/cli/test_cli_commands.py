"""Every command: one JSON object, help with an example, its place on the reference page; a quick start."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from calls import SMALL, call
from typer.testing import CliRunner

from shoal import Config, InputError, Mechanism, __version__
from shoal.product.cli.main import app

ROOT = Path(__file__).parents[2]
_SPEC = importlib.util.spec_from_file_location("make_cli", ROOT / "docs" / "make_cli.py")
reference = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(reference)
COMMANDS = dict(reference.commands())
CONTRACT = {
    "demo", "check", "run", "explain", "curve", "frontier", "prove", "ledger show",
    "ledger verify", "ledger budget", "attack", "serve",
}  # fmt: skip


def test_the_commands_of_the_contract():
    assert set(COMMANDS) == {f"shoal {name}" for name in CONTRACT}


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help_with_an_example(name):
    shown = CliRunner().invoke(app, [*name.split()[1:], "--help"])
    assert shown.exit_code == 0
    assert "Examples:" in shown.stdout
    assert f"{name} " in shown.stdout.partition("Examples:")[2] or f"{name}\n" in shown.stdout
    assert "--json" in shown.stdout


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_examples_use_options_that_exist(name):
    options = {flag for one in COMMANDS[name].params for flag in one.opts}
    for line in reference._text(COMMANDS[name]).splitlines():
        for part in line.split("&&"):
            if part.strip().startswith(name):
                assert {word for word in part.split() if word.startswith("--")} <= options


def test_the_reference_page_is_up_to_date():
    assert (ROOT / "docs" / "cli.md").read_text() == reference.page(), "run python docs/make_cli.py"


def loaded_by(*words: str) -> set[str]:
    """The modules that a command loads."""
    code = (
        "import sys\nfrom shoal.product.cli.main import app\n"
        f"try:\n    app({list(words)})\nexcept SystemExit:\n    pass\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr.split())


def test_help_loads_nothing_heavy():
    heavy = {"numpy", "numba", "scipy", "polars", "sklearn", "sqlalchemy", "opendp", "matplotlib"}
    assert not heavy & loaded_by("--help")


def test_a_look_at_a_run_loads_no_part_of_scipy_that_computes(finished):
    heavy = {"scipy.stats", "scipy.optimize", "scipy.sparse", "scipy.spatial", "scipy.special", "sklearn", "matplotlib"}
    assert not heavy & loaded_by("ledger", "show", str(finished))


def test_the_installed_command_and_its_version():
    done = subprocess.run([sys.executable, "-m", "shoal", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"shoal {__version__}\n"


def test_completion_is_offered():
    assert "--install-completion" in CliRunner().invoke(app, ["--help"]).stdout


def test_demo_as_a_process_gives_one_json_object(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "shoal", "demo", "--out", tmp_path / "d", "--households", "9", *SMALL, "--json"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["stages"]["release"]["crowds"] == 1
    assert found["stages"]["fit"]["later_known"] > 0
    assert "forming crowds" in done.stderr


def test_summary_for_people(january):
    brief = call("run", "--out", january).out
    for heading in ("Protected", "Accuracy", "Attack", "Share", "Keep private"):
        assert heading in brief
    text = call("run", "--out", january, "--verbose").out
    for heading in ("Protected", "Accuracy", "Attack", "Not protected", "Time", "Files"):
        assert heading in text
    flowing = " ".join(text.split())
    assert "At least 4 households share each row" in " ".join(brief.split())
    assert "Someone who knows the other members' figures" in " ".join(brief.split())
    assert "season by day" in flowing
    assert flowing.count("ε = 0, δ = 0 between members of a crowd") == flowing.count("ε =") == 1


def test_prove(charged):
    done = call("prove", charged, "--json").json
    assert done["scope"] == "table"
    assert 0 <= done["delta_lower"] <= done["delta_upper"] < 1
    for name, one in done["proofs"].items():
        proof = json.loads((charged / "proof" / f"{name}.json").read_text())
        assert proof["digest"] == one["digest"]
        assert float.fromhex(proof["delta_upper"]) == one["delta_upper"]
    assert "δ at most" in call("prove", charged).out


def test_curve(charged):
    done = call("curve", charged, "--epsilon", "0.1:2:20", "--json").json
    assert len(done["epsilon"]) == len(done["delta_upper"]) == 20
    (path,) = (charged / "mechanism").glob("*.shoal")
    mechanism = Mechanism.load(path)
    assert done["delta_upper"] == pytest.approx(mechanism.released_curve(done["epsilon"]).delta_upper.tolist())
    far = call("curve", charged, "--epsilon", "0.1:60:30", "--json").json["delta_upper"]
    assert far == sorted(far, reverse=True)  # what holds at ε holds above it, finite precision or not
    ideal = call("curve", path, "--epsilon", "1", "--notion", "pdp", "--json").json
    assert ideal["notion"] == "pdp"
    assert "δ at most" in call("curve", charged).out


def test_frontier(charged):
    arguments = ("frontier", charged, "--rho", "0.05,0.2", "--method", "white,center", "--search", "3")
    done = call(*arguments, "--json").json
    assert set(done["delta_upper"]) == {"white", "center"}
    assert done["delta_upper"]["white"][0] >= done["delta_upper"]["white"][1]
    assert "white" in call(*arguments).out


def test_ledger_commands(charged):
    shown = call("ledger", "show", charged, "--json").json
    assert shown["releases"] == 12
    assert [(row["kind"], row["labels"]) for row in shown["released"]] == [("answers", 12)]
    one = call("ledger", "show", charged, "--label", "H0003", "--json").json
    assert [account["name"] for account in one["accounts"]] == ["label H0003"]
    good = call("ledger", "verify", f"sqlite:///{charged / 'ledger.db'}", "--head", shown["head"], "--json")
    assert good.code == 0
    assert good.json["ok"] is True
    left = call("ledger", "budget", charged, "--json").json
    assert left["set"] is False
    assert all(0 < account["remaining"] <= account["budget"] for account in left["accounts"])
    set_ = call("ledger", "budget", charged, "--epsilon", "1", "--delta", "0.5", "--json").json
    assert {account["budget"] for account in set_["accounts"]} == {0.5}
    assert {account["mode"] for account in set_["accounts"]} == {"adaptive"}
    assert call("ledger", "budget", charged, "--epsilon", "1", "--delta", "0.5", "--label", "H0003").code == 2
    assert call("ledger", "budget", charged, "--mode", "fixed").code == 2
    assert "δ(1)" in call("ledger", "show", charged).out


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"epsilonn": 1}, "unknown setting 'epsilonn'"),
        ({"epsilon": "one"}, "must be a number"),
        ({"horizon": 1.5}, "must be a whole number"),
        ({"order": "p"}, "list of whole numbers"),
        ({"delta": 0.1, "rho": 0.1}, "exclude each other"),
    ],
)
def test_bad_configuration(settings, says):
    with pytest.raises(InputError) as error:
        Config().with_settings(**settings)
    assert says in str(error.value)


def test_options_displace_each_other():
    white = {"method": "white", "epsilon": 1.0}
    assert Config(**white, delta=0.1).with_settings(rho=0.2).delta is None
    assert Config(**white, rho=0.1).with_settings(delta=0.2).rho is None
    assert Config(**white, rho=0.1).with_settings(epsilon=2.0).rho == 0.1
    assert Config(**white, rho=1.0).delta is None


def test_season_by_default():
    assert Config().season == "day"
    assert Config(train_days=28).season == "week"


def test_every_setting_is_an_option_of_run_with_its_words():
    params = {p.name: p for p in COMMANDS["shoal run"].params}
    for name, (field, _) in Config.options().items():
        words = field.metadata["text"]
        assert words[1:] in params[name].help, name
        assert params[name].opts == [f"--{name.replace('_', '-')}"]
    options = [p for p in params.values() if p.param_type_name == "option"]
    assert len(options) <= 44
    assert not any(p.hidden for p in options)
    first = {p.name for p in options if p.rich_help_panel is None}
    assert first == {"out", "crowd", "label", "update", "rehearse"}  # and --help
    about = {"out", "config", "as_json", "meters", "households", "update", "rehearse", "until", "verbose", "settings"}
    about |= {"at_most", "within", "database", "accept_doubtful_law"}
    for name in ("demo", "run"):
        assert {p.name for p in COMMANDS[f"shoal {name}"].params} - about - {"help"} <= set(Config.options()), name


@pytest.mark.parametrize("text", ["max_kw=50.0", "order=2,1", "columns=a,-b", "unit=kwh-register", "accept=large"])
def test_any_setting_is_set_by_its_name(text):
    name, value = Config.parse_setting(text)
    given = {"label": "x"} if name == "columns" else {}
    assert getattr(Config(**given).with_settings(**{name: value}), name) == value


@pytest.mark.parametrize("text", ["max_kw", "max_kw=", "nothing=1"])
def test_what_is_no_setting_is_refused(text):
    with pytest.raises(InputError, match="NAME=VALUE"):
        Config.parse_setting(text)


@pytest.mark.parametrize("name", ["shoal", "shoal ledger", *sorted(COMMANDS)])
def test_no_line_of_the_help_is_cut(name):
    shown = CliRunner().invoke(app, [*name.split()[1:], "--help"], env={"COLUMNS": "80"}).stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert [line for line in shown.splitlines() if re.search(r"…\s*│?\s*$", line)] == []
    if name.count(" ") == 1 and name in COMMANDS:
        assert len(COMMANDS[name].help.strip().splitlines()[0]) <= 66


def test_the_command_imports_shoal_and_its_own_modules_only():
    for path in (ROOT / "src" / "shoal" / "product" / "cli").glob("*.py"):
        found = re.findall(r"^\s*(?:from|import) (shoal[\w.]*)", path.read_text(), flags=re.M)
        known = {"shoal", "shoal.rounding", "shoal.plaintext", "shoal.accounting.curve", "shoal.product.service"}
        known |= {
            "shoal.files",
            "shoal.mechanism.releasable",
            "shoal.numerics",
            "shoal.records",
            "shoal.product.runs.owner_ledger",
            "shoal.product.card",
            "shoal.product.card.promises",
        }
        assert {name for name in found if not name.startswith("shoal.product.cli")} <= known, path.name
