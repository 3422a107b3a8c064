"""What `?` shows: what this page is, and which keys do something on it."""

from dataclasses import dataclass

from dash import html
from dash.development.base_component import Component

from .parts import icon_button, marks

Keys = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class PageHelp:
    """`page`: the id of its element."""

    page: str
    name: str
    about: str
    keys: Keys = ()


_TASK_KEYS = (("n  p  r  e", "notify, pause, resume or end it, after a look at what it would hit"),)

HELPS = (
    PageHelp("fleet", "Fleet",
             "Every Gpu is a cell, its colour and number the metric under “Show”. "
             "The line above sums up the whole fleet; a click on a cell opens all that is known of "
             "that Gpu.", (
                 ("/", "go to the filter"),
                 ("← ↑ ↓ →", "move over the heatmap, when it has the focus"),
                 ("Home  End", "the first and the last Gpu"),
                 ("Enter", "open the Gpu under the mark"),
                 ("Space", "add it to the selection, or take it out"),
                 ("Shift + click", "select from the last one to this one"),
                 ("Ctrl + click", "add to the selection, or take out"),
                 ("o", "the timelines of the Gpu that is open"),
                 ("c", "compare the selected Gpus"),
                 ("v", "heatmap or table"),
                 ("↑  ↓", "from number to number in an open Gpu, with what each means"),
                 ("b", "go to the time bar"),
                 ("←  →", "on the time bar: back and on by a step, with Shift by ten"),
                 ("Home  End", "on the time bar: the oldest moment, and live"),
                 ("PgUp  PgDn", "on the time bar: the mark before, the mark after"),
                 ("Space", "on the time bar: play, or pause"),
                 ("Esc", "close, then clear the selection, then clear the filter"))),
    PageHelp("lines", "Timelines",
             "Each chart is one metric or a few that belong together, over the "
             "same time. A hole in a line is a moment without a reading. Dashed: limits; shaded: "
             "slowed down; marks on top: events.", (
                 ("←  →", "back and on in time"),
                 ("+  -", "closer and farther; a drag over a chart does it too"),
                 ("End", "live again"),
                 ("h", "the same further back, up to 90 days"),
                 ("↑  ↓", "from number to number at the side, with what each means"),
                 ("Esc", "live again, then back to the fleet"))),
    PageHelp("tasks", "Tasks",
             "Every process that uses a Gpu. The order holds while the pointer or "
             "the focus is in the table, so that no row moves under it.", (
                 ("/", "go to the filter"),
                 ("↑  ↓", "from task to task"),
                 ("Home  End", "the first and the last"),
                 ("Enter", "open the task, or a group"),
                 ("Space  x", "add it to the selection, or take it out"),
                 *_TASK_KEYS,
                 ("Shift + click", "select from the last one to this one"),
                 ("Ctrl + click", "add to the selection, or take out"),
                 ("Esc", "close, then clear the selection"))),
    PageHelp("quotas", "Quotas", "How much an owner may hold, who holds how much of it, and on how "
             "many nodes that is really in force. One that observes only says who is over."),
    PageHelp("alerts", "Alerts", "What fires: a rule has been true of something for long enough. "
             "While a silence is in force, nobody is told of matching alerts and no rule "
             "acts on them; it has an end.", (
                 ("1 to 5", "firing, pending, held, silenced, over"),
                 ("n", "a new rule"),
                 ("s", "silence something"))),
    PageHelp("history", "History", "The past of Gpus, of a node or of an owner: the mean of each "
             "step as a line, from lowest to highest as a band, events as marks. A drag zooms in.",
             (
                 ("← →  +  -", "back and on, closer and farther"),
                 ("p", "a drag moves the span instead"),
                 ("b", "the band from lowest to highest"),
                 ("Esc", "the whole span again"))),
    PageHelp("reports", "Reports",
             "Who held how much over a time, how busy it was, and what it cost "
             "at your prices. What a column means stands under the pointer on its head."),
    PageHelp("record", "Record",
             "What was asked, of what, by whom, and what came of it: refusals too. "
             "Nothing here can be changed; “Verify” walks the whole chain.", (
                 ("/", "go to the first filter"),)),
    PageHelp("settings", "Settings", "Who may come in, as what, and which nodes belong here."),
)
EVERYWHERE: Keys = (
    ("g f", "go to the fleet"),
    ("g t", "go to the tasks"),
    ("g a", "go to the alerts"),
    ("g q", "go to the quotas"),
    ("g h", "go to history"),
    ("g p", "go to the reports"),
    ("g r", "go to the record"),
    ("g s", "go to the settings"),
    ("a", "the acts that are running"),
    ("t", "dark or light"),
    ("?", "this help"),
)


def help_dialog() -> Component:
    return html.Dialog(
        id="help-dialog",
        className="dialog help",
        **marks(aria_labelledby="help-title"),
        children=[
            html.Div([html.H2("Help", id="help-title"),
                      icon_button("help-close", "close", "Close (Esc)")], className="dialog-head"),
            *[_page(one) for one in HELPS],
            html.Section([html.H3("On every page"), _keys(EVERYWHERE)], className="shortcuts"),
            html.P("What a metric means stands beside its name, under the pointer, at the focus "
                   "and at a touch.", className="help-about last"),
            html.P(id="help-cost", className="help-about", hidden="hidden"),
        ],
    )


def _page(one: PageHelp) -> Component:
    keys = [html.H3("On this page"), _keys(one.keys)] if one.keys else []
    return html.Section([html.P([html.Strong(f"{one.name}. "), one.about],
                                className="help-about"),
                         html.Div(keys, className="shortcuts")],
                        hidden="hidden", **marks(data_page=one.page))


def _keys(keys: Keys) -> Component:
    return html.Dl([html.Div([html.Dt([html.Kbd(key) for key in together.split("  ")]),
                              html.Dd(what)]) for together, what in keys])
