"""The Estimate page: what a model needs, part by part, and where it fits."""

from typing import Any

from dash.development.base_component import Component

from gpudeck.client.hub import Client, typed
from gpudeck.errors import CommandError
from gpudeck.estimate.request import EstimateView, FitView, PartView, SpeedView
from gpudeck.markup import make

from .estimate_form import EstimateForm, fields, question_of
from .parts import READ_PAGE, Page, copyable, problem, prose, switch
from .reading import Parts, Reading
from .words import amount, bytes_words, plural, sentence

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
                make("div#estimate-form", [
                    make("div.field", [
                        make("label", "config.json of the model", htmlFor="estimate-config"),
                        make("textarea#estimate-config", rows="9", spellCheck="false",
                             data_view="config"),
                        make("small", [
                            "Paste it from Hugging Face, or ",
                            make("button.as-link", "open a file", data_file="config",
                                 data_accept=".json,application/json"),
                            ". It stays between this page and the hub."])]),
                    make("div#estimate-fields.estimate-fields")])]),
            make("div.estimate-found", [
                problem("estimate"),
                make("div#estimate-sum.estimate-sum", role="status"),
                make("div#estimate-parts.estimate-parts"),
                make("ul#estimate-notes.estimate-notes"),
                make("div#estimate-fits.estimate-fits")])])],
        hidden=True, data_unsettled="")


def answer(client: Client, form: EstimateForm, now: float) -> Parts:
    try:
        return parts_of(form, typed(EstimateView, client.estimate(question_of(form))))
    except CommandError as error:
        return refusal(form, str(error))


def parts_of(form: EstimateForm, estimate: EstimateView) -> Parts:
    """Return the parts of the page. Pure."""
    return {"estimate-fields": fields(form.kind), "estimate-problem": None,
            "estimate-sum": _sum(estimate), "estimate-parts": _table(estimate),
            "estimate-notes": [make("li", words) for words in note_words(estimate)],
            "estimate-fits": _fits(estimate.fits)}


def refusal(form: EstimateForm, words: str) -> Parts:
    """Return what stands on the page where nothing can be estimated. Pure."""
    empty = dict.fromkeys(("estimate-sum", "estimate-parts", "estimate-notes", "estimate-fits"))
    return {"estimate-fields": fields(form.kind), "estimate-problem": sentence(words), **empty}


def _sum(estimate: EstimateView) -> list[Component]:
    where = "one GPU" if estimate.gpus == 1 else f"each of {amount(estimate.gpus)} GPUs"
    active = estimate.active
    sparse = "" if active is None or active >= estimate.parameters / 2 else (
        f", {amount(active / 1e9, 2)} of them per token")
    return [make("p.estimate-total", [make("strong", bytes_words(estimate.total)),
                                      f" on {where}"]),
            make("p", f"{bytes_words(estimate.low)} to {bytes_words(estimate.high)}; have "
                 f"{bytes_words(estimate.ask)} free. {amount(estimate.parameters / 1e9, 2)} "
                 f"billion parameters{sparse}.")]


def _table(estimate: EstimateView) -> Component:
    return make("table.rows", [
        make("thead", make("tr", [make("th", head, scope="col")
                                  for head in ("Part", "GiB", "How it is computed")])),
        make("tbody", [_part(part, estimate.total) for part in estimate.parts])],
        aria_label="Parts of the memory")


def _part(part: PartView, total: float | None) -> Component:
    share = 100 * part.bytes / total if total else 0.0
    bar = make("span.estimate-bar", make(
        "i", style={"width": f"{min(100.0, share):.2f}%"}, aria_hidden="true"))
    return make("tr", [
        make("th", part.name, scope="row", data_head="Part"),
        make("td.number", make("div", [amount(part.bytes / 2**30, 2), bar]), data_head="GiB"),
        make("td.formula", part.formula, data_head="How")])


def note_words(estimate: EstimateView) -> list[str]:
    """Say how far to trust the estimate, then its notes. Pure."""
    doubt = (f"A range of 20 %: {'; '.join(estimate.inexact)}." if estimate.inexact else
             f"Published figures of this kind were met within {amount(100 * estimate.error)} %.")
    return [doubt, *map(sentence, estimate.notes)]


def _fits(fits: list[FitView]) -> list[Component]:
    head = make("h2", "In this fleet")
    if not fits:
        return [head, make("p.none", "No GPU reports at the moment, or none that you can see.")]
    return [head, make("ul", [_fit(fit) for fit in fits])]


def _fit(fit: FitView) -> Component:
    head = make("p", [make("strong", fit.model),
                      f" {bytes_words(fit.mem_bytes, 'memory unknown')}"])
    key: dict[str, Any] = {"data_key": f"{fit.model} {fit.mem_bytes}"}
    if fit.gpus is None:
        return make("li.fit-no", [head, make("p", [make("span.pill", "does not fit"),
                                                   f" {sentence(fit.why)}"])], **key)
    layout, for_one = (f" ({fit.layout})", " each") if fit.gpus > 1 else ("", "")
    lines = [f"{amount(fit.gpus)} of {plural(fit.there, 'GPU')}{layout}, "
             f"{bytes_words(fit.ask_bytes)}{for_one}; {amount(fit.free)} free now."]
    if fit.speed is not None:
        lines.append(speed_words(fit.speed))
    if fit.why:
        lines.append(sentence(fit.why))
    command = [copyable(fit.command, "the command")] if fit.command else []
    return make("li.fit-yes", [head, *map(prose, lines), *command], **key)


def speed_words(speed: SpeedView) -> str:
    low, high = speed.tokens_per_s
    days = "" if speed.days is None else (
        f" {amount(speed.days[0], 1)} to {amount(speed.days[1], 1)} days.")
    return f"{amount(low)} to {amount(high)} tokens/s: {speed.formula}.{days}"


PAGE = Page(
    "estimate", "Estimate", READ_PAGE, frame,
    "Memory and speed of training or serving a model, from its config.json, and which GPUs of the "
    "fleet fit it.", (), "/estimate", ("e", "the estimate"),
    reading=Reading(EstimateForm, answer))
