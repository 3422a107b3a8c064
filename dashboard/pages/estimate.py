"""The Estimate page: its frame; assets/insight/estimate.mjs fills it."""

from dash.development.base_component import Component

from gpudeck.markup import make

from .parts import Page, problem, switch

KINDS = (("inference", "Inference"), ("training", "Training"))


def frame() -> Component:
    return make("div#estimate.estimate-page", [
        make("header.estimate-head", [make("div", [
            make("h1", "Estimate"),
            make("p#estimate-words", "Whether a model fits, before it runs: memory of one GPU, "
                 "part by part, and the GPUs of this fleet that have as much.")])]),
        make("div.estimate-columns", [
            make("div.estimate-asked", [
                switch("estimate-kind", "What it is for", "kind", KINDS),
                make("div#estimate-form")]),
            make("div.estimate-found", [
                problem("estimate"),
                make("div#estimate-sum.estimate-sum", role="status"),
                make("div#estimate-parts.estimate-parts"),
                make("ul#estimate-notes.estimate-notes"),
                make("div#estimate-fits.estimate-fits")])])],
        hidden=True, data_unsettled="")


PAGE = Page(
    "estimate", "Estimate", "insight/estimate.mjs", frame,
    "Memory and speed of training or serving a model, from its config.json, and which GPUs of the "
    "fleet fit it.", (), "/estimate", ("e", "the estimate"))
