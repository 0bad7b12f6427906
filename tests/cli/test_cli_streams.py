"""Closed pipes, early interrupts and missing parts end a command quietly, before it works or after it has."""

from __future__ import annotations

import errno
import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest
import typer
from calls import call

import shoal
from shoal.accounting import spectrum
from shoal.numerics import compilation
from shoal.product.cli.output import Outcome, StageProgress, command
from shoal.product.runs.config import Config
from shoal.product.runs.run import compile_kernels_first

LOADING = """
import os, signal, sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
from shoal.__main__ import run
run()
"""
OPTIONS = """
import os, signal, typer.main
make = typer.main.get_command
def interrupted(app):
    os.kill(os.getpid(), signal.SIGINT)
    return make(app)
typer.main.get_command = interrupted
from shoal.__main__ import run
run()
"""


@pytest.fixture
def closed() -> Iterator[TextIO]:
    """A stream whose reader has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        yield stream


@command()
def talkative(code: int = 0) -> Outcome:
    """Says a lot."""
    return Outcome({"words": "word " * 100_000}, parts=[("Words", ["word " * 100_000])], code=code)


class Gone(io.StringIO):
    """A stream whose reader has gone, as Windows tells it."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def write(self, text: str) -> int:
        raise OSError(errno.EINVAL, "Invalid argument")

    def fileno(self) -> int:
        return self._number


def test_so_it_is_as_windows_tells_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as file:
        monkeypatch.setattr(sys, "stdout", Gone(file.fileno()))
        with pytest.raises(typer.Exit):
            talkative(code=0, as_json=False)  # elsewhere it is an error, and told
        monkeypatch.setattr(sys, "platform", "win32")
        talkative(code=0, as_json=True)


@pytest.mark.parametrize("as_json", [False, True])
def test_a_reader_who_has_gone_changes_nothing(closed: TextIO, monkeypatch: pytest.MonkeyPatch, as_json: bool) -> None:
    monkeypatch.setattr(sys, "stdout", closed)
    talkative(code=0, as_json=as_json)
    sys.stdout.write("more")
    sys.stdout.flush()  # as the interpreter does at its end


def test_a_run_goes_on_where_nobody_reads_its_progress(closed: TextIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", closed)
    with StageProgress() as progress:
        for stage in ("fit", "design"):
            progress(stage, "working", 0, 0)


@pytest.mark.parametrize("moment", [LOADING, OPTIONS])
def test_an_interrupt_before_the_command_begins_is_one_sentence(moment: str) -> None:
    done = subprocess.run([sys.executable, "-c", moment], capture_output=True, text=True, timeout=120)
    assert done.returncode == -signal.SIGINT
    assert done.stderr == "shoal: interrupted before anything was begun.\n"


def test_the_first_run_says_that_it_compiles_what_runs_call(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, str, float, int]] = []
    monkeypatch.setattr(compilation, "FOLDER", tmp_path)
    compile_kernels_first(lambda *report: told.append(report), Config(method="white", epsilon=1.0, delta=1e-3))
    assert [(stage, at, of) for stage, _, at, of in told] == [("compile", 0, 0), ("compile", 1, 1)]
    assert all("compiling, once on this machine" in text for _, text, _, _ in told)
    kernels = (spectrum._fill_spectra_in_doubles, spectrum._fill_precise_spectra)
    before = [list(kernel.signatures) for kernel in kernels]
    assert all(before)
    classes = shoal.GaussianClasses([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0]], [[[1.0, 0.2], [0.2, 1.0]]] * 3)
    graph = shoal.NeighborGraph.complete(classes.labels)
    for scope in ("answer", "table"):
        assert shoal.design(classes, graph, "center", 1.0, 0.5, scope=scope).certificate.delta_upper < 1
    assert [list(kernel.signatures) for kernel in kernels] == before
    for last in ("likelihood.profile_likelihood", "formation._reform_neighbors", "spectrum._fill_spectra_in_doubles"):
        (tmp_path / f"{last}-1.nbi").touch()
    compile_kernels_first(lambda *report: told.append(report), Config(method="white", epsilon=1.0, delta=1e-3))
    assert len(told) == 2


def test_a_url_with_a_malformed_port_is_a_sentence() -> None:
    done = call("ledger", "show", "postgresql://owner@db:five/ledger")
    assert done.code == 2
    assert "port from 1 to 65535" in done.err


def test_interrupts_are_left_alone_where_they_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    from shoal import __main__ as main
    from shoal.product.cli import main as commands

    monkeypatch.setattr(commands, "app", lambda: None)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        main.run()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    main.run()
    assert signal.getsignal(signal.SIGINT) is before
    assert shoal.__version__
