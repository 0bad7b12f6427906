"""Honest proofs, mutants of them, and a judge that shares nothing with the checker.

A mutant is a proof file, and sometimes its file of parameters sealed anew, in which something was changed by lot. Most
are nonsense. The judge looks at what the checker confirms: the accounting's certified brackets must not contradict any
end that is stated, every pair must be accounted for, and the sentence must say what the file says.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

import shoal
from shoal import archive
from shoal.accounting import curve as accounting
from shoal.accounting.releases import Releases
from shoal.mechanism.releasable import laws_file_parts
from shoal.proofs import checker
from shoal.proofs import proof as proofs

#: What a field may be replaced with.
HOSTILE: list[Any] = [
    "nan", "inf", "-inf", "NaN", "Infinity", "1e-300", "0x0p0", "0x0.0p+0", "-0x0.0p+0", "0x1.0000000000000p+0",
    "-0x1.0000000000000p+0", "0x1.0000000000000p+1", "0x0.0000000000001p-1022", "0x1.fffffffffffffp+1023",
    (1e-300).hex(), (1e-6).hex(), (0.5).hex(), (1000.0).hex(), "0x1p99999", "", "forward", "table", "answer", "a", "0x",
    "1" * 40, -1, 0, 1, 2, 3, 10**6, 10**30, True, False, None, [], {}, [[]], [0, 1], ["nan"], [-1], 0.5, -1.5, 1e-300,
    math.nan, math.inf, -math.inf, {"by": "apart"}, "apart", "gaussian", "bounded", "integral", "chernoff", "unsettled",
]  # fmt: skip
ENDS = ("delta_lower", "delta_upper", "ideal_upper", "finite_precision")


class Case(NamedTuple):
    """A proof file and the file that it is about."""

    name: str
    proof: str
    content: bytes


# ---------------------------------------------------------------------------------------------------------------
# Honest ones


def _laws(name: str, classes: shoal.GaussianClasses, epsilon: float, scope: str = "answer") -> Case:
    graph = shoal.NeighborGraph.complete(classes.labels)
    content = archive.pack(*laws_file_parts(classes, graph.edges))
    return Case(name, shoal.prove(classes, graph, epsilon, scope).to_json(), content)


def _made(name: str, mechanism: shoal.Mechanism, **options: Any) -> Case:
    return Case(name, shoal.prove(mechanism, **options).to_json(), mechanism.to_bytes())


@cache
def honest() -> tuple[Case, ...]:
    """Small proofs that use every kind of statement, in every scope, down to those that underflow."""
    gaussian = shoal.GaussianClasses
    points = gaussian.deterministic([[0.0], [1.0], [2.5]], labels=["a", "b", "c"])
    far = gaussian.deterministic([[0.0], [40.0], [80.0]], labels=["a", "b", "c"])
    graph = shoal.NeighborGraph.complete(points.labels)
    white = shoal.design(points, graph, "white", 1.0, 4.0)
    narrow = gaussian([[0.0], [0.0]], [[[0.5]], [[1.0]]])
    wider = gaussian([[0.0], [0.5]], [[[1.0]], [[1.5]]])
    plane = gaussian([[0.0, 0.0], [0.5, -0.25]], [np.eye(2), [[1.5, 0.25], [0.25, 0.75]]])
    crowd = gaussian([[0.0], [0.3], [0.9], [3.0]], [[[1.0]], [[1.1]], [[1.3]], [[1.2]]])
    same = gaussian([[1.0, 2.0]] * 3, np.eye(2))
    singular = gaussian([[0.0, 0.0], [1.0, 1.0]], np.ones((2, 2)))
    some = shoal.NeighborGraph.from_edges(points.labels, [("a", "c"), ("c", "b")])
    several = shoal.design(points, graph, "white", 1.0, 40.0, times=3, scope="table")
    varied = shoal.design(points, graph, "white", [0.5, 1.0, 1.5], 4.0)
    return (
        _made("white noise", white),
        _made("white noise, table", white, scope="table"),
        _made("white noise, ε far out", white, epsilon=900.0),
        _made("far apart", shoal.design(far, graph, "white", 1.0, 1.0)),
        _made("no noise", shoal.design(far, graph, "none", 1.0, 1.0)),
        _made("listed pairs", white, graph=some, epsilon=2.0),
        _made("several answers", several),
        _made("ε per pair", varied),
        _made("a shared answer", shoal.design(points, graph, "center", 1.0, 4.0)),
        _laws("bounded", narrow, 0.5),
        _laws("not bounded yet", narrow, 0.3),
        _laws("one entry", wider, 0.5),
        _laws("one entry, table", wider, 0.5, "table"),
        _laws("one entry, nothing left", wider, 300.0),
        _laws("one entry, nothing left, table", wider, 5000.0, "table"),
        _laws("two entries", plane, 1.0),
        _laws("a crowd", crowd, 1.0),
        _laws("equal", same, 0.0),
        _laws("equal covariances, nothing left", gaussian([[0.0], [0.1]], [[1.0]]), 6.0),
        _laws("known up to errors", wider.with_errors(np.full((2, 1, 1), 1e-9), np.full((2, 1), 1e-9)), 0.5),
        _laws("not settled", singular.with_errors(np.full((1, 2, 2), 1e-12), np.zeros((2, 2))), 1.0),
    )


# ---------------------------------------------------------------------------------------------------------------
# Mutants


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to everything inside of a JSON value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(deeper for key, one in inside for deeper in _places(one, (*path, key)))]


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def _number(text: Any) -> float | None:
    try:
        return float.fromhex(text) if isinstance(text, str) and text.startswith(("0x", "-0x")) else None
    except (ValueError, OverflowError):
        return None


def _nudged(rng: np.random.Generator, value: float) -> float:
    ways: list[Callable[[float], float]] = [
        lambda v: v / 2, lambda v: v * 2, lambda v: v * (1 - 1e-9), lambda v: v * (1 + 1e-9), lambda v: 0.0,
        lambda v: 1.0, lambda v: math.nextafter(v, -1.0), lambda v: math.nextafter(v, 2.0), lambda v: -v,
        lambda v: v * 1e-12,
    ]  # fmt: skip
    return ways[rng.integers(len(ways))](value)


def _field(rng: np.random.Generator, proof: dict[str, Any]) -> None:
    """Something anywhere becomes something else."""
    places = [path for path in _places(proof) if path]
    path = places[rng.integers(len(places))]
    parent, key = _at(proof, path[:-1]), path[-1]
    number = _number(parent[key])
    way = int(rng.integers(6))
    if way <= 1 and number is not None:
        parent[key] = _nudged(rng, number).hex()
    elif way <= 2:
        parent[key] = copy.deepcopy(HOSTILE[rng.integers(len(HOSTILE))])
    elif way == 3:
        parent[key] = copy.deepcopy(_at(proof, places[rng.integers(len(places))]))
    elif way == 4:
        del parent[key]
    elif isinstance(parent, list):
        other = int(rng.integers(len(parent)))
        if rng.random() < 0.5:
            parent.insert(other, copy.deepcopy(parent[key]))
        else:
            parent[key], parent[other] = parent[other], parent[key]
    else:
        parent[f"{key} "] = copy.deepcopy(parent[key])


def _smaller(rng: np.random.Generator, proof: dict[str, Any]) -> None:
    """Every upper end is lowered, or every lower end raised, consistently."""
    share = float(rng.choice([1e-12, 1e-9, 1e-3, 0.5, 1.0]))
    raised = rng.random() < 0.3
    for entry in proof["edges"]:
        ends = {end: float.fromhex(entry[end]) for end in ("lower", "upper")}
        if raised:
            ends = {"lower": min(ends["upper"] * (1 + share), 1.0), "upper": min(ends["upper"] * (1 + 2 * share), 1.0)}
        else:
            ends = {"lower": min(ends["lower"], ends["lower"] * (1 - share)), "upper": ends["upper"] * (1 - share)}
            ends["lower"] = min(ends.values())
        entry |= {end: value.hex() for end, value in ends.items()}
    _ends_follow(proof)


def _ends_follow(proof: dict[str, Any]) -> None:
    """What is stated in all follows from what is stated of each."""
    lower = max((float.fromhex(e["lower"]) for e in proof["edges"]), default=0.0)
    ideal = max((float.fromhex(e["upper"]) for e in proof["edges"]), default=0.0)
    loss = float.fromhex(proof["finite_precision"])
    upper = ideal + loss if 0.0 in (ideal, loss) else min(math.nextafter(ideal + loss, math.inf), 1.0)
    proof |= {"delta_lower": lower.hex(), "ideal_upper": ideal.hex(), "delta_upper": upper.hex()}


def _by(rng: np.random.Generator, proof: dict[str, Any]) -> None:
    """Enclosures that claim to be found in another way."""
    for entry in proof["edges"]:
        entry["by"] = str(rng.choice(["apart", "gaussian", "bounded", "chernoff", "integral", "unsettled"]))
        entry.pop("path", None)
        entry.pop("order", None)
        if entry["by"] == "chernoff":
            entry["order"] = float(10.0 ** rng.uniform(-3, 3)).hex()
        if entry["by"] == "integral":
            numbers = {"center": 0.5, "scale": 0.5, "angle": 0.3, "reach": 5.0, "level": -1.0}
            entry["path"] = {name: value.hex() for name, value in numbers.items()} | {"bend": 1}
        if rng.random() < 0.5:
            entry |= {"lower": (0.0).hex(), "upper": float(rng.choice([0.0, 1e-300, 1.0])).hex()}
    _ends_follow(proof)


def _accounts(rng: np.random.Generator, proof: dict[str, Any]) -> None:
    """All pairs are excluded, or equal, or none is mentioned."""
    directions = ("table",) if proof["scope"] == "table" else ("forward", "backward")
    way = int(rng.integers(4))
    rows = range(proof["n_edges"])
    proof |= {"edges": [], "equal": [], "excluded": [], "unsettled": []}
    if way == 0:
        proof["excluded"] = [
            [row, each, repr(float(rng.choice([1e-3, 1.0, 50.0])))] for row in rows for each in directions
        ]
    elif way == 1:
        proof["equal"] = list(rows)
    elif way == 2:
        proof["edges"] = [
            {"edge": row, "direction": directions[0], "by": "apart", "lower": (0.0).hex(), "upper": (1e-300).hex()}
            for row in rows
        ]
    _ends_follow(proof)
    if way == 0:
        small = float(rng.choice([1e-300, 1e-6, 0.5]))
        proof |= {"ideal_upper": small.hex(), "delta_upper": (small + float.fromhex(proof["finite_precision"])).hex()}


def _pairs(rng: np.random.Generator, proof: dict[str, Any]) -> None:
    """Pairs of its own: dropped, doubled, turned round, of a label with itself."""
    count = proof["n_edges"]
    pairs = proof["pairs"] or [[i, j] for i in range(3) for j in range(i + 1, 3)][:count]
    proof["own_graph"] = bool(rng.random() < 0.1)
    way = int(rng.integers(6))
    row = int(rng.integers(len(pairs)))
    if way == 0:
        pairs = pairs[:row] + pairs[row + 1 :]
        for name in ("edges", "excluded"):
            proof[name] = [e for e in proof[name] if (e["edge"] if isinstance(e, dict) else e[0]) < len(pairs)]
        proof["equal"] = [e for e in proof["equal"] if e < len(pairs)]
        _ends_follow(proof)
    elif way == 1:
        pairs = [*pairs, pairs[row]]
        proof["equal"] = [*proof["equal"], len(pairs) - 1]
    elif way == 2:
        pairs[row] = pairs[row][::-1]
    elif way == 3:
        pairs = [[i, i] for i, _ in pairs]
        proof |= {"edges": [], "excluded": [], "equal": list(range(len(pairs)))}
        _ends_follow(proof)
    elif way == 4:
        pairs[row] = [-1, 0]
    proof |= {"pairs": pairs, "n_edges": len(pairs)}


def _question(rng: np.random.Generator, proof: dict[str, Any]) -> None:
    """Another ε, or another scope."""
    if rng.random() < 0.3:
        proof["scope"] = "table" if proof["scope"] == "answer" else "answer"
    else:
        value = float(rng.choice([0.0, 1e-3, 0.49, 1.0, 1.0 + 1e-9, 3.0, 700.0, 1e300]))
        proof["epsilon"] = [value.hex()] * proof["n_edges"] if rng.random() < 0.3 else value.hex()


def _file(rng: np.random.Generator, proof: dict[str, Any], content: bytes) -> bytes:
    """Another file of parameters, sealed anew, and the proof about that one."""
    header, arrays, _ = checker.read(content)
    arrays = {name: values.copy() for name, values in arrays.items()}
    way = int(rng.integers(5))
    if way == 0:
        header["labels"] = [str(rng.choice(["a", "b", "zz"])) for _ in header["labels"]]
    elif way == 1:
        edges = arrays["edges"]
        change = int(rng.integers(4))
        if change == 0:
            edges = edges[:-1]
        elif change == 1:
            edges = np.concatenate([edges, edges[:1]])
        elif change == 2:
            edges[0] = edges[0, 0]
        else:
            edges[0] = [0, -1]
        arrays["edges"] = edges
        proof["n_edges"] = len(edges) if rng.random() < 0.8 else proof["n_edges"]
    elif way == 2:
        header |= {"times": rng.choice([0, 1, 2, -1]).item(), "outside": float(rng.choice([0.0, 0.5, -0.5, 2.0]))}
    else:
        name = str(rng.choice(sorted(arrays)))
        values = arrays[name]
        if values.size and values.dtype == np.float64:
            place = int(rng.integers(values.size))
            values.flat[place] = rng.choice([math.nan, math.inf, -1.0, 0.0, values.flat[place] * 1.5 + 0.25, 1e308])
        elif values.size:
            values.flat[int(rng.integers(values.size))] += int(rng.integers(-3, 4))
    proof["digest"] = archive.digest({k: v for k, v in header.items() if k != "digest"}, arrays)
    return archive.pack(header, arrays)


def _doubled(rng: np.random.Generator, text: str, proof: dict[str, Any]) -> str:
    """A name that occurs twice, first as it was and then as something else, or the other way round."""
    key = sorted(proof)[rng.integers(len(proof))]
    number = _number(proof[key])
    other = HOSTILE[rng.integers(len(HOSTILE))] if number is None else _nudged(rng, number).hex()
    added = f"{json.dumps(key)}: {json.dumps(other)}"
    return "{" + added + ", " + text[1:] if rng.random() < 0.5 else text.rstrip()[:-1] + ", " + added + "}"


def mutant(rng: np.random.Generator, case: Case) -> Case:
    """One proof with one to three changes."""
    proof, content = json.loads(case.proof), case.content
    for _ in range(int(rng.integers(1, 4))):
        way = rng.random()
        try:
            if way < 0.5:
                _field(rng, proof)
            elif way < 0.92:
                changes = (_smaller, _by, _accounts, _pairs, _question)
                changes[rng.integers(len(changes))](rng, proof)
            else:
                content = _file(rng, proof, content)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, checker.Refused):
            continue  # nothing was left there to change
    text = json.dumps(proof, sort_keys=True)
    if isinstance(proof, dict) and proof and rng.random() < 0.08:
        text = _doubled(rng, text, proof)
    return Case(case.name, text, content)


# ---------------------------------------------------------------------------------------------------------------
# The judge


@cache
def _released(content: bytes) -> tuple[shoal.GaussianClasses, shoal.Mechanism | None]:
    """The laws of a file as the library reads them."""
    if archive.format_of(content) == "shoal mechanism":
        mechanism = shoal.Mechanism.from_bytes(content)
        return mechanism.output, mechanism
    header, arrays = archive.unpack(content, "shoal laws", 1, "laws")
    covs = arrays["covs"] if "covs" in arrays else arrays["variances"]
    make = shoal.GaussianClasses if "covs" in arrays else shoal.GaussianClasses.diagonal
    classes = make(arrays["means"], covs[0] if len(covs) == 1 else covs, header["labels"])
    if "cov_error" in arrays:
        classes = classes.with_errors(arrays["cov_error"], arrays["mean_error"])
    return classes, None


@cache
def _brackets(content: bytes, pair: tuple[int, int], epsilon: float, scope: str) -> tuple[tuple[float, float], ...]:
    """Certified ends of ln δ in every direction, by the accounting; (−∞, 0) where it says nothing."""
    classes, mechanism = _released(content)
    releases = Releases.collect(classes, scope, 1 if mechanism is None else mechanism.times)
    rows = np.array([pair])
    every = accounting.log_delta_brackets(releases, rows, 0, np.array([epsilon]), releases.epsilon_offsets(rows, None))[
        0
    ]
    result = []
    for direction in every:
        try:
            _, low, high = accounting.split_brackets(direction)
            result.append((float(low[0]), float(high[0])))
        except shoal.CertificationError:
            result.append((-math.inf, 0.0))
    return tuple(result)


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


def _at_most(one: float, two: float) -> bool:
    """Whether one ln δ is at most another, up to the last digits of a logarithm in doubles."""
    return one == -math.inf or one <= two + 1e-12 * (1 + abs(one))


def faults(case: Case, sentence: str) -> list[str]:
    """What is wrong with a statement that was confirmed: nothing, if the checker is right."""
    proof = json.loads(case.proof)
    try:
        classes, mechanism = _released(case.content)
    except shoal.ShoalError as error:
        return [f"the library refuses the file: {error}"]
    found = []
    scope, labels = proof["scope"], list(classes.labels)
    if proof["own_graph"]:
        _, arrays, _ = checker.read(case.content)
        pairs = [tuple(pair) for pair in arrays["edges"].tolist()]
        if mechanism is not None:
            pairs = [tuple(pair) for pair in mechanism.pairs.tolist()]
    else:
        pairs = [tuple(pair) for pair in proof["pairs"]]
    if any(i == j for i, j in pairs) or len({frozenset(pair) for pair in pairs}) < len(pairs) or not pairs:
        found.append("pairs")
    given = proof["epsilon"]
    epsilon = [float.fromhex(e) for e in (given if isinstance(given, list) else [given] * len(pairs))]
    if not all(0 <= e < math.inf for e in epsilon) or len(epsilon) != len(pairs):
        return [*found, "epsilon"]
    lower, upper, ideal, loss = (float.fromhex(proof[name]) for name in ENDS)
    if not 0 <= lower <= ideal <= upper <= 1 or not 0 <= loss <= 1:
        found.append("ends")
    directions = ("table",) if scope == "table" else ("forward", "backward")
    truth = {
        (row, each): ends
        for row, pair in enumerate(pairs)
        for each, ends in zip(directions, _brackets(case.content, pair, epsilon[row], scope), strict=True)
    }
    if not _at_most(max(low for low, _ in truth.values()), _log(ideal)):
        found.append(f"upper end {ideal!r}")
    if not _at_most(_log(lower), max(high for _, high in truth.values())):
        found.append(f"lower end {lower!r}")
    accounted = {(row, each) for row in proof["equal"] for each in directions}
    if any(truth[key][0] > -math.inf for key in accounted):
        found.append("laws that are not equal")
    for entry in proof["edges"]:
        key = (entry["edge"], entry["direction"])
        everywhere = entry["by"] in ("apart", "unsettled")
        accounted |= {(entry["edge"], each) for each in directions} if everywhere else {key}
        low, high = truth[key]
        ends = [float.fromhex(entry[end]) for end in ("lower", "upper")]
        if not _at_most(low, _log(ends[1])):
            found.append(f"upper end of pair {key}")
        if not _at_most(_log(ends[0]), high):
            found.append(f"lower end of pair {key}")
    accounted |= {(row, each) for row, each, _ in proof["excluded"]}
    if accounted != set(truth):
        found.append("pairs that are not accounted for")
    if mechanism is not None:
        laws = proofs.DyadicLaws(mechanism)
        cost = proofs._precision_loss(mechanism, laws, np.array(pairs), np.array(epsilon), scope)
        if not loss >= cost * (1 - 1e-9):
            found.append(f"finite precision {loss!r} below {cost!r}")
        if not (upper == 1 or upper >= ideal + loss * (1 - 1e-15)):
            found.append("what finite precision costs is not added")
    if sorted(proof["worst_edge"]) not in [sorted([labels[i], labels[j]]) for i, j in pairs]:
        found.append("the worst pair is none")
    graph = "own graph" if proof["own_graph"] else "listed in the proof"
    parts = (repr(lower), repr(upper), f"{len(pairs)} pair(s)", graph, repr(max(epsilon)), f"scope {scope}")
    if not all(part in sentence for part in parts):
        found.append("the sentence")
    return found


class Outcome(NamedTuple):
    """How many mutants were refused, confirmed, and confirmed wrongly."""

    refused: int
    confirmed: int
    wrong: list[str]


def trial(seed: int, count: int) -> Outcome:
    """Mutants of all honest proofs in turn, from this seed."""
    cases, refused, confirmed, wrong = honest(), 0, 0, []
    for number in range(count):
        case = mutant(np.random.default_rng([seed, number]), cases[number % len(cases)])
        try:
            sentence = checker.check(checker.parse(case.proof.encode()), case.content)
        except checker.Refused:
            refused += 1
            continue
        confirmed += 1
        wrong += [f"{number} ({case.name}): {fault}" for fault in faults(case, sentence)]
    return Outcome(refused, confirmed, wrong)
