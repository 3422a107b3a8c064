"""The Estimate page: the question its fields make, and what it shows of the answer."""

import json
from typing import Any

import msgspec
import pytest

from dashboard.pages.estimate import PAGE, answer, parts_of, refusal
from dashboard.pages.estimate_form import CHOICES, FIELDS, EstimateForm, fields, question_of
from gpudeck.errors import CommandError
from gpudeck.estimate import request
from gpudeck.estimate.fit import FleetBoards
from gpudeck.estimate.request import EstimateAsked, EstimateView
from gpudeck.markup import markup

from .read_parts import wire_parts

EVIL = "<img src=x onerror=alert(1)>"
H100 = FleetBoards("NVIDIA H100 80GB HBM3", 80.0 * 2**30, 16, 3, 8, False)


def estimate(form: EstimateForm, *boards: FleetBoards) -> EstimateView:
    return request.answer(msgspec.convert(question_of(form), EstimateAsked), boards)


class HubThatAnswers:
    """A client whose hub estimates, or refuses with `problem`."""

    def __init__(self, problem: str = "") -> None:
        self.problem = problem
        self.questions: list[Any] = []

    def estimate(self, question: Any) -> Any:
        self.questions.append(question)
        if self.problem:
            raise CommandError(self.problem)
        return msgspec.to_builtins(request.answer(msgspec.convert(question, EstimateAsked)))


@pytest.mark.parametrize("kind", FIELDS)
def test_every_choice_makes_a_question_that_the_hub_takes(kind: Any) -> None:
    for field in FIELDS[kind]:
        for value in CHOICES.get(field.name, ("3",)):
            form = msgspec.structs.replace(EstimateForm(kind=kind), **{field.name: value})
            order = msgspec.convert(question_of(form), EstimateAsked)
            assert (order.training is None) == (kind == "inference")


def test_each_field_has_a_place_in_the_view_and_none_is_forgotten() -> None:
    names = {field.name for kind in FIELDS.values() for field in kind}
    own = {*EstimateForm.__annotations__} - {"UNADDRESSED"}
    assert names | {"kind", "config"} == own


@pytest.mark.parametrize(("text", "number"), [
    ("2e12", 2_000_000_000_000), ("1 000", 1_000), ("1,000", 1_000), (" 0.5", 0.5)])
def test_numbers_as_people_write_them(text: str, number: float) -> None:
    question = question_of(EstimateForm(kind="training", tokens=text))
    assert question["training"]["tokens"] == number
    assert "tokens" not in question_of(EstimateForm(kind="training", tokens=" "))["training"]


@pytest.mark.parametrize("text", ["many", "nan", "inf", "1e999", "--1"])
def test_what_is_no_number_is_named_by_its_label(text: str) -> None:
    with pytest.raises(CommandError, match="Prompt, tokens is not a number"):
        question_of(EstimateForm(prompt=text))


@pytest.mark.parametrize("config", ["", "{", "[1]", "null", '"a"', "[" * 100_000])
def test_what_is_no_config_is_refused_before_the_hub_is_asked(config: str) -> None:
    hub = HubThatAnswers()
    parts = answer(hub, EstimateForm(config=config), 0.0)  # type: ignore[arg-type]
    assert parts["estimate-problem"] == (
        "This is not a config.json: a JSON object is expected.")
    assert all(parts[f"estimate-{place}"] is None for place in ("sum", "parts", "notes", "fits"))
    assert parts["estimate-fields"], "the form stays"
    assert hub.questions == []


def test_a_refusal_of_the_hub_is_shown_and_nothing_old_stays() -> None:
    parts = answer(HubThatAnswers("jamba is not known"), EstimateForm(), 0.0)  # type: ignore[arg-type]
    assert parts["estimate-problem"] == "Jamba is not known."
    assert all(parts[f"estimate-{place}"] is None for place in ("sum", "parts", "notes", "fits"))


def test_an_empty_fleet_is_said_and_the_model_is_estimated_all_the_same() -> None:
    parts = answer(HubThatAnswers(), EstimateForm(), 0.0)  # type: ignore[arg-type]
    assert parts["estimate-problem"] is None
    assert "on one GPU" in markup(parts["estimate-sum"])
    assert "14.96" in markup(parts["estimate-parts"])
    assert "No GPU reports at the moment" in markup(parts["estimate-fits"])


def test_where_it_fits_and_where_not_with_the_command_to_copy() -> None:
    form = EstimateForm()
    small = FleetBoards(EVIL, 4.0 * 2**30, 2, 2, 2, False)
    unknown = FleetBoards("Odd", None, 1, 0, 1, False)
    result = estimate(form, H100, small, unknown)
    text = markup(parts_of(form, result)["estimate-fits"])
    assert "of 16 GPUs" in text
    assert "3 free now." in text
    assert 'class="fit-yes"' in text
    assert "does not fit" in text
    assert "memory unknown" in text
    assert "<img" not in text
    command = next(fit.command for fit in result.fits if fit.command)
    assert f'data-copy="{command}"' in text.replace("&#x27;", "'")


def test_a_bar_is_no_longer_than_the_whole() -> None:
    form = EstimateForm(kind="training")
    result = estimate(form)
    widths = [part.style["width"] for part in parts_of(form, result)["estimate-parts"]._traverse()
              if type(part).__name__ == "I"]
    assert len(widths) == len(result.parts)
    assert all(0 <= float(width.removesuffix("%")) <= 100 for width in widths)


def test_fields_are_those_of_the_kind_and_each_has_its_label() -> None:
    for kind, of in FIELDS.items():
        text = markup(fields(kind))
        for field in of:
            assert f'<label for="estimate-{field.name}">{field.label}</label>' in text
    assert "framework&#x27;s default" in markup(fields("training"))


def test_all_parts_have_a_place_in_the_frame() -> None:
    form = EstimateForm()
    for parts in (refusal(form, "no"), parts_of(form, estimate(form, H100))):
        assert wire_parts(PAGE, parts)["estimate-fields"]


def test_the_example_is_a_config() -> None:
    assert json.loads(EstimateForm().config)["model_type"] == "llama"
