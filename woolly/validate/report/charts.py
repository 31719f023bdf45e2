"""Charts as SVG, drawn from lists of points. Colours are those of the page, so that they follow light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

WIDTH, HEIGHT = 640, 260
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 28, 44
TICKS = 4


@dataclass(frozen=True, slots=True)
class Series:
    """A named series of points; the n-th series has the n-th colour of the page."""

    name: str
    points: tuple[tuple[float, float], ...]


def chart(title: str, x: str, y: str, lines: Sequence[Series], *, dots: bool = False) -> str:
    """One chart with both axes from their least to their most, y from 0; empty where there are no points."""
    lines = [line for line in lines if line.points]
    if not lines:
        return ""
    points = [point for line in lines for point in line.points]
    low, high = _span([p[0] for p in points])
    top = _ceiling(max(p[1] for p in points))
    across = (WIDTH - LEFT - RIGHT) / (high - low)
    up = (HEIGHT - TOP - BOTTOM) / top

    def place(point: tuple[float, float]) -> tuple[float, float]:
        return LEFT + (point[0] - low) * across, HEIGHT - BOTTOM - point[1] * up

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">']
    parts += _frame(x, y, low, high, top)
    for row, line in enumerate(lines):
        places = [place(point) for point in line.points]
        colour = f"var(--line{row % 4})"
        if not dots and len(places) > 1:
            path = " ".join(f"{px:.1f},{py:.1f}" for px, py in places)
            parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        if dots or len(places) <= 40:
            parts += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="{colour}"/>' for px, py in places]
        if len(lines) > 1:
            at = LEFT + 8 + row * 130
            parts.append(f'<rect x="{at}" y="8" width="10" height="10" fill="{colour}"/>')
            parts.append(f'<text x="{at + 15}" y="17">{escape(line.name)}</text>')
    return f"<figure><figcaption>{escape(title)}</figcaption>{''.join([*parts, '</svg>'])}</figure>"


def number(value: float) -> str:
    """A number with four digits, and all of those before the point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _frame(x: str, y: str, low: float, high: float, top: float) -> list[str]:
    parts = []
    for tick in range(TICKS + 1):
        share = tick / TICKS
        py = HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
        px = LEFT + share * (WIDTH - LEFT - RIGHT)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{py:.1f}" y2="{py:.1f}" class="grid"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{py + 4:.1f}" text-anchor="end">{number(share * top)}</text>')
        at = low + share * (high - low)
        parts.append(f'<text x="{px:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{number(at)}</text>')
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x)}</text>')
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(
        f'<text x="14" y="{middle}" text-anchor="middle" transform="rotate(-90 14 {middle})">{escape(y)}</text>'
    )
    return parts


def _span(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _ceiling(value: float) -> float:
    """The next round number: 1, 2, 2.5, 4, 5 or 10 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** floor(log10(value))
    return next(step * power for step in (1, 2, 2.5, 4, 5, 10) if step * power >= value or ceil(step) == 10)
