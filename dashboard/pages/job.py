"""The page of a job or launch: its frame, filled by assets/jobs/job.mjs."""

from dash.development.base_component import Component

from gpudeck.markup import make, region

from .components import RankMap
from .parts import Page, problem, switch

METRICS = (("util_pct", "Utilization"), ("power_w", "Power"), ("mem_used_bytes", "Memory"),
           ("mem_util_pct", "Memory traffic"), ("sm_active_pct", "SM active"),
           ("nvlink_tx_bytes_per_s", "NVLink"), ("temp_c", "Temperature"),
           ("host_cpu_pct", "Host CPU"),
           ("io_pressure_pct", "Disk pressure"))


def frame() -> Component:
    return make("div#job.job-page", [
        make("header.lines-head", [
            make("nav.crumbs", make("a", "Tasks", href="/tasks"),
                 aria_label="Breadcrumb"),
            make("div.lines-name", [make("h1#job-title", "…"), make("p#job-subtitle", "")]),
            make("div#job-acts.page-acts", "")]),
        problem("job"),
        region("div.job-floor", "Job", [
            make("ul#job-findings.job-findings"),
            make("section.job-ranks", [
                make("header", [make("h2", "Ranks side by side"),
                                switch("job-metric", "Metric", "metric", METRICS)]),
                RankMap("job-map", metric="util_pct"),
                make("p#job-scale.job-scale", "", role="status")]),
            make("section#job-lease-section", [make("h2", "Lease"),
                                               make("div#job-leases.job-leases")], hidden=True),
            make("div.job-columns", [
                make("section", [make("h2", "Facts"), make("dl#job-facts.facts")]),
                make("section", [make("h2", "Events"), make("ul#job-events.job-events")])])])],
        hidden=True, data_unsettled="")


PAGE = Page(
    "job", "Job", "jobs/job.mjs", frame,
    "A row for each rank, a column for each step of time; findings are listed above, with their "
    "evidence. A launch shows its ranks on all nodes.",
    (("←  →", "next or previous metric"),), addresses=r"^/job/.+$", under="/tasks")
