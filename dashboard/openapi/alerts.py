"""OpenAPI of rules, alerts, notices and what bounds them."""

from gpudeck.action_views import CommandView

from ..alerts.core.rule import Rule
from ..alerts.rehearsal.views import BacktestList, BacktestView, NewBacktest
from ..alerts.views import (
    AlertList,
    NewSilence,
    RuleCheck,
    RuleDraft,
    RuleList,
    RuleView,
    SilenceList,
    SilenceView,
)
from ..automation.views import (
    BrakesView,
    BreakerReset,
    LadderConfirmation,
    MaintenanceList,
    MaintenanceView,
    NewMaintenance,
    RuleModeChange,
)
from ..notifications.views import (
    NewReceiver,
    ReceiverList,
    ReceiverTestView,
    ReceiverView,
    WaitingNotificationList,
)
from ..web.openapi_parts import MAX_WORD, TIME, Operation

OPERATIONS = (
    Operation("get", "alerts", "list_alerts", "Those that fire now; with `state=pending` what "
              "is so and not for long enough, `fired_at` ahead of now; with `state=ended` those of "
              "the last seven days or between `start` and `end`; newest first.", AlertList, None,
              200, (400,), (("state", {"enum": ["open", "pending", "ended"],
                                        "default": "open"}),
                            ("rule", {"type": "string", "maxLength": MAX_WORD}), ("start", TIME),
                            ("targets", {"type": "string", "description": "Of these alone, up to "
                                         "20, joined by commas."}),
                            ("gpus", {"type": "string", "description": "What is marked at these "
                                      "Gpus, up to 20, joined by commas: their own, those of "
                                      "tasks, jobs and owners on them, and of their nodes."}),
                            ("end", TIME))),
    Operation("get", "rules", "list_rules", "All Rules, and how many of their targets are in which "
              "phase.", RuleList),
    Operation("get", "rules/{rule_id}", "get_rule", "One Rule.", RuleView, None, 200, (404,)),
    Operation("put", "rules/{rule_id}", "put_rule", "A new Rule, or a new version of one.",
              RuleView, Rule, 200, (400, 409, 412, 415, 503), version="number"),
    Operation("delete", "rules/{rule_id}", "remove_rule", "It is not watched any more; what it "
              "was is kept.", None, None, 204, (404, 503)),
    Operation("post", "rule-checks", "check_rule", "What is wrong with it, or of which targets its "
              "condition is true at this moment.", RuleCheck, RuleDraft, 200, (400, 415)),
    Operation("get", "rules/backtests", "list_backtests", "Rehearsals of Rules, newest first; with "
              "`rule`, of that one.", BacktestList, None, 200, (400, 403),
              (("rule", {"type": "string", "maxLength": MAX_WORD}),)),
    Operation("post", "rules/backtests", "begin_backtest", "Rehearses a Rule on the past: which "
              "alerts there would have been, and whom its ladder would have reached.",
              BacktestView, NewBacktest, 202, (400, 403, 409, 415, 503)),
    Operation("get", "rules/backtests/{backtest_id}", "get_backtest", "One rehearsal, with what is "
              "known of it by now.", BacktestView, None, 200, (403, 404)),
    Operation("post", "rules/backtests/{backtest_id}/approve", "approve_backtest", "Its report was "
              "read, and is taken as proof of what this version of the Rule would do.",
              BacktestView, None, 200, (403, 404, 409, 503)),
    Operation("get", "silences", "list_silences", "All Silences, those that are over as well.",
              SilenceList),
    Operation("post", "silences", "add_silence", "Matching alerts neither tell nor act until "
              "`until`, within 30 days.", SilenceView, NewSilence, 201, (400, 404, 409, 415, 503)),
    Operation("delete", "silences/{silence_id}", "end_silence", "Ends one now.", None, None, 204,
              (404, 503)),
    Operation("get", "receivers", "list_receivers", "Where notices go, and how each has been doing "
              "since the hub was started.", ReceiverList),
    Operation("post", "receivers", "add_receiver", "A place for notices: a webhook, addresses, "
              "the owners of tasks, or a heartbeat that comes every minute.", ReceiverView,
              NewReceiver, 201, (400, 409, 415, 503)),
    Operation("put", "receivers/{receiver_id}", "change_receiver", "The whole of it; an empty `to` "
              "or no token leaves what there is.", ReceiverView, NewReceiver, 200,
              (400, 404, 409, 415, 503)),
    Operation("delete", "receivers/{receiver_id}", "remove_receiver", "And what waits to be sent "
              "there.", None, None, 204, (404, 503)),
    Operation("post", "receivers/{receiver_id}/test", "test_receiver", "Sends it a notice that is "
              "none, now.", ReceiverTestView, None, 200, (404, 503)),
    Operation("get", "notices", "list_notices", "What was not taken yet, and what was put aside "
              "after a day.", WaitingNotificationList),
    Operation("post", "notices/{notice_id}/retry", "retry_notice", "Tries it again at once.", None,
              None, 204, (404, 503)),
    Operation("delete", "notices/{notice_id}", "drop_notice", "It is not sent.", None, None, 204,
              (404, 503)),
    Operation("post", "rules/{rule_id}/mode", "set_rule_mode", "What a Rule may do by itself; up "
              "takes an admin, and auto what is proven of it.", RuleView, RuleModeChange, 200,
              (400, 404, 409, 415, 503)),
    Operation("post", "alerts/{alert_id}/confirm", "confirm_alert", "A person lets a Rule in "
              "confirm take its next step.", CommandView, LadderConfirmation, 202,
              (400, 404, 409, 415, 503)),
    Operation("get", "brakes", "get_brakes", "What bounds automatic acts, and what holds now.",
              BrakesView),
    Operation("post", "brakes", "reset_brakes", "Lets automatic acts go on; what waited is "
              "dropped.", BrakesView, BreakerReset, 200, (400, 409, 415, 503)),
    Operation("get", "maintenance", "list_maintenance", "Nodes that people work on.",
              MaintenanceList),
    Operation("put", "nodes/{node_id}/maintenance", "begin_maintenance", "Nothing is done there by "
              "itself, and by hand only on a second click.", MaintenanceView, NewMaintenance, 200,
              (400, 404, 409, 415, 503)),
    Operation("delete", "nodes/{node_id}/maintenance", "end_maintenance", "Ends it now.", None,
              None, 204, (404, 503)),
)
