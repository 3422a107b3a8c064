"""Figures that people explore. The only plotly of the notebook."""

from typing import Any

from plotly import graph_objects
from plotly.subplots import make_subplots

GIB = 2**30
NONE, GRID = "rgba(0, 0, 0, 0)", "rgba(128, 128, 128, 0.25)"


def timeline(frame: Any) -> Any:
    """Plot a measure: utilization above, memory below, a line per GPU."""
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.08,
                           subplot_titles=("utilization, %", "memory of this kernel, GiB"))
    for gpu, rows in frame.groupby("gpu"):
        for row, key, name, scale in ((1, "util_pct", "the whole GPU", 1.0),
                                      (1, "my_sm_pct", "this kernel, SM", 1.0),
                                      (2, "my_mem_bytes", "this kernel", GIB)):
            points = rows[rows[key].notna()]
            figure.add_trace(
                graph_objects.Scatter(x=points["seconds"], y=points[key] / scale, mode="lines",
                                      name=f"GPU {gpu}, {name}"), row=row, col=1)
    if frame.empty:
        figure.add_annotation(text="no GPU was measured", showarrow=False, x=0.5, y=0.5,
                              xref="paper", yref="paper")
    figure.update_xaxes(title_text="seconds", row=2, col=1)
    figure.update_yaxes(range=[0, 101], row=1, col=1)
    figure.update_yaxes(rangemode="tozero", row=2, col=1)
    # The notebook's theme is not known here: grey without a background is readable on both.
    figure.update_xaxes(gridcolor=GRID, zerolinecolor=GRID)
    figure.update_yaxes(gridcolor=GRID, zerolinecolor=GRID)
    return figure.update_layout(height=420, margin={"t": 40, "b": 40}, font_color="#808080",
                                paper_bgcolor=NONE, plot_bgcolor=NONE)
