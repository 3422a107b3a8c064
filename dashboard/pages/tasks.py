"""The Tasks page: its controls and the frame of its table; the rows come by the API."""

from dash import html
from dash.development.base_component import Component

from .fleet import choice
from .parts import icon_button, marks

GROUPS = (("none", "nothing"), ("owner", "owner"), ("job", "job"))
FILTER_EXAMPLES = (
    ("user:alice", "alice's tasks, and nobody else's"),
    ("util<5 & mem>50%", "on a Gpu that hardly works and is full"),
    ("task:train.py", "with these words in the command"),
    ("node:a100 & !user:root", "on nodes with a100 in their name"),
)


def tasks_page() -> Component:
    return html.Div(
        id="tasks",
        className="tasks-page",
        hidden="hidden",
        children=[
            html.H1("Tasks", className="unseen"),
            _tools(),
            html.Div(
                [
                    html.Section(
                        [html.Div(id="tasks-problem", className="problem", hidden="hidden",
                                  role="alert"),
                         html.Div(id="tasks-hint", className="held-order", hidden="hidden",
                                  role="status"),
                         html.Div(id="tasks-place", className="tasks-place")],
                        id="tasks-stage", className="tasks-stage", **marks(aria_label="Tasks")),
                    _details(),
                ],
                className="floor",
            ),
            html.Div(id="tasks-bulk", className="bulk", hidden="hidden", role="region",
                     **marks(aria_label="Selected tasks")),
        ],
    )


def _tools() -> Component:
    return html.Div(
        className="tools",
        children=[
            choice("tasks-group", "Group by", GROUPS),
            html.Div(
                [
                    html.Label("Filter", htmlFor="tasks-filter"),
                    html.Span(id="tasks-filter-place", className="filter-place"),
                    icon_button("tasks-filter-help", "help", "How to write a filter"),
                    html.Output("", id="tasks-words", className="filter-words"),
                    _filter_help(),
                ],
                className="filter",
            ),
        ],
    )


def _filter_help() -> Component:
    rows = [
        html.Div([html.Dt(html.Button(html.Code(text), className="example", type="button",
                                      **marks(data_example=text))), html.Dd(what)])
        for text, what in FILTER_EXAMPLES
    ]
    return html.Div(
        id="tasks-popover",
        className="popover",
        hidden="hidden",
        role="dialog",
        **marks(aria_label="How to write a filter"),
        children=[
            html.Dl(rows),
            html.P(["Here ", html.Code("user:"), " and ", html.Code("task:"), " mean the task "
                    "itself. Numbers, ", html.Code("node: model: gpu: state:"), " are those of "
                    "its Gpus, as on the Fleet page."]),
            html.P(["Join with ", html.Code("&"), " ", html.Code("|"), " ", html.Code("!"),
                    " and ( )."]),
        ],
    )


def _details() -> Component:
    return html.Aside(
        id="task-drawer",
        className="drawer",
        hidden="hidden",
        tabIndex="-1",
        **marks(aria_labelledby="task-title"),
        children=[
            html.Header(
                [
                    html.Div([html.H2("", id="task-title"), html.P("", id="task-subtitle")]),
                    icon_button("task-copy", "copy", "Copy a link to this task"),
                    icon_button("task-close", "close", "Close (Esc)"),
                ]
            ),
            html.Div(id="task-body", className="drawer-body", tabIndex="0", role="region",
                     **marks(aria_label="Details of the task")),
        ],
    )
