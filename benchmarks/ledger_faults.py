"""Kill processes while they release, over and over, and prove that the ledger lost, forgot and overspent nothing.

``python -m benchmarks.ledger_faults [kills]`` (1,000 by default) on SQLite and, where it is installed, on PostgreSQL.
Workers release answers about a few labels as fast as they can and write every answer they were *shown* to a file of
their own. A killer sends SIGKILL to a random one at a random moment and starts another in its place.
"""

from __future__ import annotations

import math
import os
import random
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.special import log_ndtr, ndtr

from shoal import BudgetError, GaussianClasses, Ledger, Mechanism, NeighborGraph, design

N_LABELS, EPSILON, DELTA = 6, 1.0, 1e-3


@dataclass(frozen=True)
class Outcome:
    """What was found after the killing."""

    kills: int
    seconds: float
    shown: int
    recorded: int
    unshown: int
    refused: int
    errors: int
    lost: int
    altered: int
    overspent: int
    recharged: int
    intact: bool
    largest: float

    @property
    def ok(self) -> bool:
        return self.intact and self.lost == self.altered == self.overspent == self.errors == self.recharged == 0


def mechanisms(allowed: int) -> list[Mechanism]:
    """Two mechanisms on one graph, such that a pair's budget lasts for about ``allowed`` releases."""
    means = np.random.default_rng(0).standard_normal((N_LABELS, 2))
    classes = GaussianClasses.deterministic(means, [f"h{i}" for i in range(N_LABELS)])
    graph = NeighborGraph.complete(classes.labels)
    farthest = max(float(((means[i] - means[j]) ** 2).sum()) for i, j in graph.edges)
    # A composed length of about 0.4 spends the budget: allowed · farthest / rho = 0.4².
    rho = allowed * farthest / 0.16
    return [design(classes, graph, "white", EPSILON, scale * rho) for scale in (0.8, 1.3)]


def spent(tools: list[Mechanism], counts: list[list[int]], label: int) -> float:
    """δ of a label's worst pair by the closed form for equal covariances, which shares no code with the ledger.

    ``counts`` has a row per label: what was released about either label of a pair counts.
    """
    means = tools[0].classes.means
    worst = 0.0
    for other in range(N_LABELS):
        if other == label:
            continue
        square = sum(
            (mine + theirs) * float(((means[label] - means[other]) ** 2).sum()) / float(tool.noise_cov[0, 0, 0])
            for tool, mine, theirs in zip(tools, counts[label], counts[other], strict=True)
        )
        if square > 0:
            length = math.sqrt(square)
            up, down = length / 2 - EPSILON / length, -length / 2 - EPSILON / length
            worst = max(worst, float(ndtr(up) - math.exp(EPSILON + log_ndtr(down))))
    return worst


def worker(url: str, tools: list[Mechanism], questions: int, seed: int, folder: Path) -> None:
    """Release until killed; never returns."""
    choose = random.Random(seed)
    shown = os.open(folder / f"shown-{seed}", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    other = os.open(folder / f"other-{seed}", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    try:
        ledger = Ledger.open(url)
        while True:
            label, number = choose.randrange(N_LABELS), choose.randrange(questions)
            tool = tools[number % len(tools)]
            try:
                answer = ledger.release(tool, tool.classes.means[label], f"h{label}", query_id=f"q{number}")
            except BudgetError:
                os.write(other, b"refused\n")
                continue
            os.write(shown, f"h{label} q{number} {answer.tobytes().hex()}\n".encode())
            os.fsync(shown)
    except BaseException as error:
        os.write(other, f"error {type(error).__name__}: {error}\n".encode())
        raise
    finally:
        os._exit(1)


def torment(url: str, kills: int, folder: Path, *, workers: int = 4, seed: int = 0, pause: float = 0.06) -> Outcome:
    """Kill ``kills`` workers, then check everything."""
    start, choose = time.monotonic(), random.Random(seed)
    allowed = max(5, kills // 8)
    tools = mechanisms(allowed)
    with Ledger.open(url) as ledger:
        ledger.budget(EPSILON, DELTA)
        ledger.release(tools[0], tools[0].classes.means[0], "h0", query_id="warm")  # compile before forking
    ledger.close()
    started = 0
    running: list[int] = []

    def begin() -> None:
        nonlocal started
        started += 1
        child = os.fork()
        if child == 0:
            worker(url, tools, 4 * allowed, seed * 1_000_000 + started, folder)
        running.append(child)

    for _ in range(workers):
        begin()
    for _ in range(kills):
        time.sleep(choose.expovariate(1 / pause))
        victim = running.pop(choose.randrange(len(running)))
        os.kill(victim, signal.SIGKILL)
        os.waitpid(victim, 0)
        begin()
    for child in running:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return checked(url, tools, kills, folder, time.monotonic() - start)


def checked(url: str, tools: list[Mechanism], kills: int, folder: Path, seconds: float) -> Outcome:
    """Compare what the workers were shown with what the ledger says."""
    recorded: dict[tuple[str, str], str] = {}
    counts = [[0, 0] for _ in range(N_LABELS)]
    with Ledger.open(url) as ledger:
        for entry in ledger.entries():
            if entry.kind != "release":
                continue
            content = entry.content
            recorded[content["label"], content["query_id"]] = np.array(content["released"]).tobytes().hex()
            counts[int(content["label"][1:])][[m.digest for m in tools].index(content["mechanism"])] += 1
        shown: dict[tuple[str, str], set[str]] = {}
        total = 0
        for path in folder.glob("shown-*"):
            for line in path.read_text().splitlines(keepends=True):
                if line.endswith("\n"):
                    label, query, content = line.split()
                    shown.setdefault((label, query), set()).add(content)
                    total += 1
        others = "".join(path.read_text() for path in folder.glob("other-*")).splitlines()
        figures = [spent(tools, counts, i) for i in range(N_LABELS)]
        report = ledger.verify()
        head = ledger.head
        changed = 0
        for label, query in shown:
            number = int(query[1:])
            tool = tools[number % len(tools)]
            again = ledger.release(tool, tool.classes.means[int(label[1:])], label, query_id=query)
            changed += again.tobytes().hex() != recorded.get((label, query))
        return Outcome(
            kills=kills,
            seconds=seconds,
            shown=total,
            recorded=len(recorded),
            unshown=len(set(recorded) - set(shown) - {("h0", "warm")}),
            refused=others.count("refused"),
            errors=sum(line.startswith("error") for line in others),
            lost=len(set(shown) - set(recorded)),
            altered=sum(contents != {recorded.get(key)} for key, contents in shown.items()) + changed,
            overspent=sum(figure > DELTA for figure in figures),
            recharged=ledger.head.seq - head.seq,
            intact=bool(report),
            largest=max(figures),
        )


def main() -> None:
    from benchmarks import _postgres

    kills = int(sys.argv[1]) if len(sys.argv) > 1 else int(os.environ.get("SHOAL_KILLS", "1000"))
    print("## Ledger under SIGKILL\n")
    print("| database | kills | s | answers shown | recorded | killed between commit and showing | refused | ", end="")
    print("lost | altered | overspent | chain | largest δ(1) of 0.001 |\n| --- |" + " ---: |" * 11)

    def row(name: str, found: Outcome) -> None:
        print(
            f"| {name} | {found.kills} | {found.seconds:.0f} | {found.shown} | {found.recorded} | {found.unshown} "
            f"| {found.refused} | {found.lost} | {found.altered} | {found.overspent} "
            f"| {'intact' if found.intact else 'BROKEN'} | {found.largest:.4g} |",
            flush=True,
        )
        if not found.ok:
            sys.exit(1)

    with tempfile.TemporaryDirectory() as folder:
        row("SQLite", torment(f"sqlite:///{folder}/ledger.db", kills, Path(folder)))
    found = _postgres.binaries()
    if found is None:
        print("PostgreSQL is not installed: skipped")
        return
    with _postgres.server(found) as address, tempfile.TemporaryDirectory() as folder:
        row("PostgreSQL", torment(_postgres.database(address, "faults"), kills, Path(folder)))


if __name__ == "__main__":
    main()
