"""Settings that `gpudeck service install` adds to a file that an administrator wrote."""

import tomllib

import pytest

from gpudeck.service.units import AGENT, merged_config

HUB, METRICS = {"hub": "https://h:1"}, {"metrics": "127.0.0.1:9400"}


@pytest.mark.parametrize("text", [
    '[agent]  # mine\nhub = "https://h:1"\n',
    '[ agent ]\nhub = "https://h:1"',
    '# one\u2028line\n[agent]\nhub = "https://h:1"\nca_file = "/a\u0085b"\n',
    '[other]\nmetrics = "theirs"'])
def test_what_is_added_changes_nothing_else(text: str) -> None:
    merged, added = merged_config(AGENT, text, METRICS)
    before, after = tomllib.loads(text), tomllib.loads(merged)
    assert added == ["metrics"]
    assert after.pop("agent") == {**before.pop("agent", {}), **METRICS}
    assert after == before
    assert set(text.split("\n")) <= set(merged.split("\n"))


def test_with_its_hub_only_its_own_table_changes() -> None:
    text = '[other]\nhub = "theirs"\nalone = 1\n[agent]\nalone = "yes"\n[last]\nhub = 2\n'
    merged, _ = merged_config(AGENT, text, HUB)
    assert tomllib.loads(merged) == {
        "other": {"hub": "theirs", "alone": 1}, "agent": HUB, "last": {"hub": 2}}


@pytest.mark.parametrize(("text", "settings"), [
    ('agent.ca_file = "/c"\n', METRICS),
    ('agent = {ca_file = "/c"}\n', METRICS),
    ('[[agent]]\nca_file = "/c"\n', METRICS),
    ("agent = 3\n", METRICS),
    ('[agent]\n"alone" = "yes"\n', HUB),
    ('[agent]\nalone = "yes"\nmetrics = """\nhub = 3\n"""\n', HUB),
    ('[agent]\nalone = "yes"\nca_file = [\n"a",\n]\n', {**HUB, "ca_file": "/c"}),
    ('[agent]\nalone = false\nhub = "https://old:1"\n', HUB)])
def test_what_cannot_be_changed_without_harm_is_refused(text: str, settings: dict[str, str]
                                                        ) -> None:
    with pytest.raises(ValueError, match=r"not changed here|no table|stays as it is"):
        merged_config(AGENT, text, settings)


@pytest.mark.parametrize(("text", "settings"), [
    ('[agent]\nhub = ["https://h:1", "https://i:1"]\n', {"hub": "https://h:1,https://i:1"}),
    ("[agent]\nalone = true\n", {"alone": "yes"})])
def test_the_same_written_in_another_way_is_the_same(text: str, settings: dict[str, str]) -> None:
    assert merged_config(AGENT, text, settings) == (text, [])
