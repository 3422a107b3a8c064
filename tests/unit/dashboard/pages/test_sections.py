"""Place of each metric on the Fleet page: a single one, where it is understood."""

from dashboard.fleet.colour_scales import has_scale
from dashboard.pages.sections import NOT_IN_SWITCH, SECTION_OF, SECTIONS, switch
from gpudeck.measures.metrics import COLUMNS, SLOW, metric


def test_every_metric_is_in_one_section() -> None:
    keys = [key for section in SECTIONS for key in section.metrics]
    assert sorted(keys) == sorted(column.key for column in (*COLUMNS, *SLOW))


def test_the_switch_offers_what_has_a_scale() -> None:
    offered = {column.key for _, metrics in switch() for column in metrics}
    assert offered == {key for key in SECTION_OF if has_scale(metric(key))} - NOT_IN_SWITCH
    assert {"util_pct", "ecc_corrected", "rows_pending", "pcie_width", "nvlink_errors",
            "mem_unseen_bytes", "slowed_power_pct", "tensor_active_pct"} <= offered
    assert set(SECTION_OF) >= NOT_IN_SWITCH


def test_utilization_has_its_better_witnesses_beside_it() -> None:
    """Pitfall 5: a share of time is not a share of the chip."""
    assert SECTION_OF["util_pct"] == SECTION_OF["sm_active_pct"] == "load"
    assert "Share of the time" in metric("util_pct").meaning
    assert "SM activity" in metric("util_pct").meaning


def test_time_on_the_memory_bus_is_no_memory() -> None:
    """Pitfall 6."""
    assert SECTION_OF["mem_util_pct"] == "load"
    assert SECTION_OF["mem_used_bytes"] == SECTION_OF["mem_unseen_bytes"] == "memory"
    assert "Not memory used" in metric("mem_util_pct").meaning
