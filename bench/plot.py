"""Time against size, log-log, with the limit drawn."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from bench.growth import Series

TITLES = {"layout": "packed_layout", "pack": "pack of int64 ids"}


def draw(series: Sequence[Series], path: Path) -> None:
    """One panel per operation: every backend, what people write, and the limit; writes an SVG."""
    operations = list(dict.fromkeys(one.operation for one in series))
    # Figures are drawn without pyplot, so no display is asked for; the same salt gives the same file.
    with mpl.rc_context({"svg.hashsalt": "alignpack", "font.size": 9}):
        figure = Figure(figsize=(9, 3.6), layout="constrained")
        panels = figure.subplots(1, len(operations), squeeze=False)[0]
        for panel, operation in zip(panels, operations, strict=True):
            own = [one for one in series if one.operation == operation]
            sizes = [point.size for point in own[0].points]
            for one in own:
                panel.loglog(sizes, [1000 * point.seconds for point in one.points], "o-", ms=3, label=one.backend)
            first = own[0]
            rivals = [1000 * point.rival for point in first.points if point.rival is not None]
            if len(rivals) == len(sizes):
                panel.loglog(sizes, rivals, "s:", ms=3, color="gray", label=f"by hand ({first.rival})")
            limits = [1000 * point.limit for point in first.points]
            panel.loglog(sizes, limits, "k--", lw=1, label=f"limit ({first.limit})")
            panel.set(title=TITLES.get(operation, operation), xlabel="slots of the input", ylabel="milliseconds")
            panel.grid(visible=True, which="major", alpha=0.3)
            panel.legend()
        figure.savefig(path, format="svg", metadata={"Date": None})
