"""An answer as a picture: SVG without scripts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

WIDTH, HEIGHT, LEFT, LOW, TOP, RIGHT = 420.0, 230.0, 44.0, 32.0, 10.0, 12.0


def answer_plot(values: Sequence[float], error: float | None, unit: str, times: Sequence[str] | None) -> str:
    """An answer as a line, with its typical error around it where that is known."""
    around = error or 0.0
    step = _round_step(max(values) + around - min(*values, 0.0))
    top = step * math.ceil((max(values) + around) / step)
    bottom = step * math.floor(min(min(values) - around, 0.0) / step) if min(values) < 0 else 0.0
    span = (top - bottom) or 1.0

    def x(place: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (place / max(len(values) - 1, 1))

    def y(value: float) -> float:
        return TOP + (HEIGHT - LOW - TOP) * (top - max(value, bottom)) / span

    def points(shift: float) -> list[str]:
        return [f"{x(place):.1f},{y(value + shift):.1f}" for place, value in enumerate(values)]

    ticks = "".join(
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(v):.1f}" y2="{y(v):.1f}"/>'
        f'<text x="{LEFT - 8}" y="{y(v) + 4:.1f}" text-anchor="end">{v:.3g}</text>'
        for v in (bottom + step * i for i in range(round(span / step) + 1))
    )
    dots = "".join(f'<circle cx="{x(i):.1f}" cy="{y(v):.1f}" r="3"/>' for i, v in enumerate(values))
    band = "" if error is None else f'<polygon points="{" ".join([*points(error), *points(-error)[::-1]])}"/>'
    first, last = (clock(times[0]), clock(times[-1])) if times else ("entry 1", f"entry {len(values)}")
    label = f"Released answer of {len(values)} entries in {escape(unit)}"
    note = "" if error is None else f"; the band is ± the typical error of {error:.2g}"
    return (
        f'<figure><svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{label}{note}">{ticks}{band}'
        f'<polyline points="{" ".join(points(0.0))}"/><g>{dots}</g>'
        f'<text x="{LEFT}" y="{HEIGHT - 8}">{escape(first)}</text>'
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 8}" text-anchor="end">{escape(last)}</text></svg>'
        f"<figcaption>Released, in {escape(unit)}{note}.</figcaption></figure>"
    )


def clock(text: str) -> str:
    """An instant to the minute, as its own clock shows it, with its offset from UTC where that is known.

    >>> clock("2025-01-31T18:00:00+01:00"), clock("2025-01-31T18:00:00")
    ('2025-01-31 18:00 +01:00', '2025-01-31 18:00')
    """
    return f"{text[:16].replace('T', ' ')} {text[19:]}".rstrip()


def _round_step(span: float) -> float:
    """A distance between grid lines that people read easily: four to eight of them."""
    rough = max(span, 1e-300) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    return power * min((1, 2, 5, 10), key=lambda times: abs(times * power - rough))
