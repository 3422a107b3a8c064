"""Which tests run when. Each is in one tier: `test` (minutes, for every change), `check` (the rest
of what must pass before a change lands) or `soak` (hours; marked in its file).

A row is the beginning of tests' names: a folder, a file, a test, or one of its parameters. The
longest row that fits counts, and what no row fits is of `test`.
"""

from collections import Counter
from typing import Literal

import pytest

Tier = Literal["test", "check", "soak"]
COLLECTED = pytest.StashKey[Counter[str]]()  # how many of each in this run, and `all`

# What drives a browser, a notebook or a card, breaks processes, or starts several of them per test.
CHECK_FOLDERS = ("tests/browser/", "tests/faults/", "tests/gpu/", "tests/notebook/")
CHECK_FILES = tuple(f"tests/integration/test_{name}.py" for name in (
    "acts_crash", "acts_mig", "agent_process", "audit_agent", "backup", "demo", "demo_past",
    "events", "history_docs", "hostile_text", "limits", "limits_of_mps", "make_demo", "notices",
    "openapi", "pool_claim", "pool_commands", "pool_ending", "pool_hub", "pool_order",
    "pool_run", "pool_told", "procfile", "quotas", "quotas_agent", "receivers",
    "resource_manager", "rules_act", "run_signals", "same_numbers", "secrets",
    "simulated_children", "site_pages", "terminal_fleet", "terminal_here", "told", "top",
    "transport", "wheel",
))
# Over three seconds on a quiet machine, or further seeds and sizes of what `test` has once.
CHECK_TESTS = (
    "tests/integration/test_callbacks.py::test_ten_thousand_mutated_bodies",
    "tests/integration/test_guessing.py::test_hashing_leaves_the_loop_alone_and_its_queue_has_an_end",
    "tests/integration/test_history.py::test_of_what_is_no_longer_kept_by_the_second_the_step_is_longer",
    "tests/integration/test_history.py::test_what_was_acked_is_told_before_and_after_a_kill_and_from_files",
    "tests/integration/test_hub_http.py::test_bad_starts_say_one_sentence",
    "tests/integration/test_hub_http.py::test_starting_and_stopping",
    "tests/integration/test_hub_wire.py::test_a_hub_that_was_paused_doubts_itself_first",
    "tests/integration/test_hub_wire.py::test_each_seq_once_across_kills_of_the_hub",
    "tests/integration/test_nodes.py::test_a_thousand_that_prove_nothing_shut_no_agent_out",
    "tests/integration/test_prometheus.py::test_a_real_prometheus",
    "tests/unit/agent/backends/test_events.py::test_an_error_of_the_wait_is_no_error_of_the_gpus[15]",
    "tests/unit/agent/backends/test_simulated_world.py::test_hours_are_believable",
    "tests/unit/agent/telemetry/test_self_cost.py::test_the_daemon_carries_no_more_than_it_uses",
    "tests/unit/dashboard/alerts/test_engine.py::test_live_and_rehearsal_are_the_same_to_the_byte",
    "tests/unit/dashboard/alerts/test_owner_rehearsal.py::test_live_and_rehearsal_are_the_same_to_the_byte[True]",
    "tests/unit/dashboard/alerts/test_rules_file.py::test_each_test_of_the_pack_can_fail",
    "tests/unit/dashboard/alerts/test_targets.py::test_twenty_thousand_tasks_are_a_part_of_a_tenth_of_a_core",
    "tests/unit/dashboard/audit/test_recorder.py::test_verify_is_fast_enough_for_a_million_in_30_s_and_keeps_no_list",
    "tests/unit/dashboard/automation/test_fault_matrix.py",
    "tests/unit/dashboard/automation/test_ladders_meanwhile.py::test_whoever_comes_back_long_after_the_hub_is_told_from_the_first_rung[3000.0-4]",
    "tests/unit/dashboard/automation/test_restarts.py::test_one_at_a_time_on_a_node_also_over_a_restart",
    "tests/unit/dashboard/automation/test_service.py::test_fifty_harmful_rules_stay_within_the_fleets_bound",
    "tests/unit/dashboard/history/test_history_store.py::test_late_seconds_lie_beside_and_then_among_the_others",
    "tests/unit/dashboard/history/test_history_store.py::test_minutes_and_hours_say_what_the_seconds_say",
    "tests/unit/dashboard/history/test_history_store.py::test_whatever_order_things_come_in",
    "tests/unit/gpudeck/test_audit_chain.py::test_each_of_10_000_changes_is_found_and_named",
    "tests/unit/gpudeck/pool/test_openb.py::test_one_seed_gives_out_as_published",
    "tests/unit/test_mutants.py::test_a_mutant_that_removes_no_guard_is_missed",
    "tests/unit/test_mutants.py::test_some_by_lot_are_caught",
)
# One real path each of what is otherwise checked before landing; one of many seeds.
TEST = (
    "tests/browser/test_fleet_page.py::test_what_control_sets_is_what_the_page_and_the_api_show",
    "tests/integration/test_agent_process.py::test_kill_9_loses_nothing_and_gives_no_number_twice",
    "tests/integration/test_demo.py::test_demo_json_says_what_is_there",
    "tests/integration/test_rules_act.py::test_the_idle_one_is_told_twice_and_ends_and_its_memory_is_back",
    "tests/notebook/test_notebook7.py::test_a_simulation_works_whole",
    "tests/unit/agent/backends/test_simulated_world.py::test_hours_are_believable[h100-n001]",
    "tests/unit/dashboard/alerts/test_engine.py::test_live_and_rehearsal_are_the_same_to_the_byte[keeps-False]",
    "tests/unit/dashboard/alerts/test_engine.py::test_live_and_rehearsal_are_the_same_to_the_byte[node-quick-False]",
)
CHECK = (*CHECK_FOLDERS, *CHECK_FILES, *CHECK_TESTS)
ROWS: dict[str, Tier] = {**dict.fromkeys(CHECK, "check"), **dict.fromkeys(TEST, "test")}


def tier_of(test: str, is_soak: bool) -> Tier:
    if is_soak:
        return "soak"
    fitting = [row for row in ROWS if test.startswith(row)]
    return ROWS[max(fitting, key=len)] if fitting else "test"
