"""Tiers, which say when a test runs. Each test is in one: `test` (minutes, before a change lands),
`check` (the rest, before anything is called finished) or `soak` (hours; marked in its file).

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
    "actions_crash", "actions_escapes", "actions_mig", "agent_process", "agent_reports",
    "audit_agent", "backup", "capabilities", "demo",
    "demo_past", "events", "history_docs", "hostile_text", "imports", "kubernetes", "limits",
    "limit_of_mps_share", "limits_of_mps", "limits_terminal", "make_demo", "mcp", "mig_layouts",
    "mirror", "mixed_nodes", "notifications", "install_mistakes",
    "oidc", "oidc_provider", "idempotency_keys", "openapi", "pool_alone", "pool_claim",
    "pool_commands", "pool_ending", "pool_ends", "pool_host_resources", "pool_hub",
    "pool_nodes", "pool_order",
    "pool_run", "pool_suspends", "pool_views",
    "postgres_hub", "procfile", "proxies", "quotas", "quotas_agent", "receivers",
    "recordings",
    "resource_manager", "rule_checks", "rule_limits", "rule_pauses", "rules_act",
    "run_agent_lost", "run_signals", "runs", "runs_booted",
    "memory_limits_booted", "s3_archive", "same_numbers", "secrets",
    "service_on_cgroup2", "service_on_slurm", "service_used", "simulated_children", "site_pages",
    "sites", "slurm",
    "standby", "suspend_agent", "holds_and_keeps",
    "terminal", "terminal_fleet", "terminal_here", "top", "transport", "wheel",
))
# Over three seconds on a quiet machine, or further seeds and sizes of what `test` has once.
CHECK_TESTS = (
    "tests/integration/test_actions.py::test_no_answer_is_unknown_and_a_late_one_settles_it",
    "tests/integration/test_actions_agent.py::test_a_bystander_that_vanishes_is_told",
    "tests/integration/test_actions_agent.py::test_a_hold_between_sigterm_and_sigkill_stops_it",
    "tests/integration/test_actions_refused.py::test_no_disk_no_act",
    "tests/integration/test_actions_refused.py::test_two_acts_at_once_are_one_after_the_other",
    "tests/integration/test_agent_dial.py::test_one_hub_by_several_urls_is_tried_in_order",
    "tests/integration/test_alerts.py::test_a_file_is_rehearsed_from_the_terminal",
    "tests/unit/dashboard/fleet/test_wasted_gpus.py::test_bursty_notebooks_waste_what_their_seconds_say[24]",
    "tests/integration/test_alerts_edges.py::test_a_rule_that_matches_nothing_now_says_so_when_it_is_written_and_checked",
    "tests/integration/test_alerts_edges.py::test_an_alert_of_the_past_is_silenced_if_it_was_when_it_ended",
    "tests/integration/test_alerts.py::test_after_a_restart_rules_are_kept_and_what_is_still_so_is_the_same_alert",
    "tests/integration/test_alerts.py::test_between_the_two_limits_nothing_changes",
    "tests/integration/test_board_repair.py::test_killed_at_every_step",
    "tests/integration/test_suspend_fails.py::test_killed_at_every_step",
    "tests/integration/test_callbacks.py::test_ten_thousand_mutated_bodies",
    "tests/integration/test_doctor.py::test_a_hung_driver_does_not_hang_it",
    "tests/integration/test_guessing.py::test_hashing_leaves_the_loop_alone_and_its_queue_has_an_end",
    "tests/integration/test_history.py::test_of_what_is_no_longer_kept_by_the_second_the_step_is_longer",
    "tests/integration/test_history.py::test_what_was_acked_is_told_before_and_after_a_kill_and_from_files",
    "tests/integration/test_hub_http.py::test_bad_starts_say_one_sentence",
    "tests/integration/test_hub_http.py::test_starting_and_stopping",
    "tests/integration/test_hub_wire.py::test_a_hub_that_was_paused_doubts_itself_first",
    "tests/integration/test_hub_wire.py::test_each_seq_once_across_kills_of_the_hub",
    "tests/integration/test_nodes.py::test_a_thousand_that_prove_nothing_shut_no_agent_out",
    "tests/integration/test_nodes.py::test_join_reads_the_token_from_standard_input",
    "tests/integration/test_nodes.py::test_revocation_under_load",
    "tests/integration/test_node_features.py::test_none_takes_another_away",
    "tests/integration/test_node_features.py"
    "::test_an_agent_whose_facts_are_not_understood_monitors_and_leases_nothing",
    "tests/integration/test_accounts.py::test_a_scope_is_seen_through_everywhere",
    "tests/integration/test_accounts.py::test_hubs_under_one_name_leave_each_others_cookies_alone",
    "tests/integration/test_accounts.py::test_the_command_line_reaches_a_running_hub_within_a_second",
    "tests/integration/test_accounts.py::test_tokens_come_are_used_and_go",
    "tests/integration/test_prometheus.py::test_a_real_prometheus",
    "tests/integration/test_quota_rights.py::test_who_sees_a_part_is_told_of_themselves_alone",
    "tests/integration/test_reports.py::test_a_report_is_the_sum_of_the_raw_files",
    "tests/integration/test_thefts.py::test_a_recorded_stream_says_nothing_again",
    "tests/integration/test_thefts.py::test_a_restored_backup_sends_nothing_and_goes_ahead",
    "tests/integration/test_thefts.py::test_of_two_hubs_with_one_key_the_older_gives_no_orders",
    "tests/test_tiers.py::test_nothing_stays_in_quarantine",  # a date must not shut the gate
    "tests/test_tiers.py::test_only_who_is_in_quarantine_is_run_again",
    "tests/test_tiers.py::test_a_check_that_fails_without_a_failed_test_has_failed",
    "tests/test_tiers.py::test_the_work_of_child_processes_counts_for_their_file",
    "tests/test_tiers.py::test_what_fails_in_check_is_run_once_more_alone_and_named",
    "tests/integration/test_thefts.py::test_a_viewer_s_session_reads_and_orders_nothing",
    "tests/unit/agent/backends/test_events.py::test_an_error_of_the_wait_is_no_error_of_the_gpus",
    "tests/unit/agent/backends/test_events.py::test_the_driver_is_not_shut_down_under_a_thread_that_hangs",
    "tests/unit/agent/backends/test_nvml_traps.py::test_a_call_that_fails_takes_nothing_else_with_it",
    "tests/unit/agent/backends/test_nvml_traps.py::test_no_call_that_pynvml_spoils",
    "tests/unit/agent/backends/test_nvml_traps.py::test_nothing_that_waits_in_the_driver_and_no_truth_of_a_c_number",
    "tests/unit/agent/backends/test_processes.py::test_the_struct_of_32_bytes",
    "tests/unit/agent/backends/test_simulated_world.py::test_hours_are_believable",
    "tests/unit/agent/backends/test_simulated_world.py::test_training_saws_its_memory_and_stops_to_save",
    *(f"tests/unit/dashboard/pool/test_interleavings.py::test_in_whatever_order[{number}"
      for number in range(1, 7)),
    "tests/unit/agent/cli/top/test_frame.py::test_no_line_is_wider_than_the_screen_and_nothing_steers_it",
    "tests/unit/agent/hosts/test_collector.py::test_a_look_costs_little",
    "tests/unit/agent/hosts/test_collector.py::test_as_psutil_reads_it_in_the_same_second",
    "tests/unit/agent/hosts/test_serving.py::test_a_hostile_endpoint_is_bounded_and_its_neighbour_is_read",
    "tests/unit/dashboard/history/test_history_hosts.py::test_minutes_say_what_was_told",
    "tests/unit/agent/telemetry/test_self_cost.py::test_the_daemon_carries_no_more_than_it_uses",
    "tests/unit/gpudeck/test_commands_shown.py::test_pages_show_the_same",
    "tests/unit/dashboard/alerts/test_engine.py",
    "tests/unit/dashboard/alerts/test_evaluator.py::test_ten_thousand_gpus_and_thirty_rules_are_a_tenth_of_a_core_at_most",
    "tests/unit/dashboard/alerts/test_fleet_rehearsal.py",
    "tests/unit/dashboard/alerts/test_rules_file.py::test_each_rule_that_comes_along_is_tested_and_passes",
    "tests/unit/dashboard/alerts/test_rules_file.py::test_each_test_of_the_pack_can_fail",
    "tests/unit/dashboard/alerts/test_targets.py::test_twenty_thousand_tasks_are_a_part_of_a_tenth_of_a_core",
    "tests/unit/dashboard/audit/test_recorder.py::test_verify_is_fast_enough_for_a_million_in_30_s_and_keeps_no_list",
    "tests/unit/dashboard/automation/test_slow_faults.py",
    "tests/unit/dashboard/automation/test_inhibition.py",
    "tests/unit/dashboard/automation/test_ladders_meanwhile.py",
    "tests/unit/dashboard/automation/test_restarts.py",
    "tests/unit/dashboard/automation/test_rule_cordons.py",
    "tests/unit/dashboard/automation/test_service.py::test_a_reset_drops_a_backlog_of_a_thousand",
    "tests/unit/dashboard/automation/test_service.py::test_a_restart_within_ten_minutes_gives_no_fresh_budget",
    "tests/unit/dashboard/automation/test_service.py::test_all_agents_at_nothing_at_once_is_a_storm_and_nobody_dies",
    "tests/unit/dashboard/automation/test_service.py::test_an_outcome_that_frightens_opens_the_breaker",
    "tests/unit/dashboard/automation/test_service.py::test_one_at_a_time_on_a_node",
    "tests/unit/dashboard/automation/test_service.py::test_fifty_harmful_rules_stay_within_the_fleets_bound",
    "tests/unit/dashboard/automation/test_service.py::test_random_rules_stay_within_the_bounds",
    "tests/unit/dashboard/demo/test_demo_alerts.py::test_a_healthy_demo_has_at_most_three_alerts_and_the_wasted_gpu_is_one",
    "tests/unit/dashboard/fleet/test_filters.py::test_ten_thousand_gpus_take_milliseconds",
    "tests/unit/dashboard/fleet/test_stolen_key.py::test_what_is_made_up_for_weeks_stays_within_bounds",
    "tests/unit/dashboard/history/test_history_oracle.py::test_history_says_what_a_slow_model_says",
    "tests/unit/dashboard/history/test_history_store.py::test_every_second_is_as_it_came_after_seal_merge_and_restart",
    "tests/unit/dashboard/history/test_history_store.py::test_late_seconds_lie_beside_and_then_among_the_others",
    "tests/unit/dashboard/history/test_history_store.py::test_minutes_and_hours_say_what_the_seconds_say",
    "tests/unit/dashboard/history/test_history_store.py::test_whatever_order_things_come_in",
    "tests/unit/dashboard/history/test_usage_parts.py::test_parts_of_any_kind_are_the_same_whole",
    "tests/unit/dashboard/insight/test_detection.py::test_the_table_of_the_page_is_measured",
    "tests/unit/dashboard/insight/test_service.py",
    "tests/unit/dashboard/jobs/test_injected_faults.py",
    "tests/unit/dashboard/pool/test_large_pool.py::test_leases_that_ended_are_kept_one_by_one_only_for_a_while",
    "tests/unit/dashboard/runtime/test_state_store.py",
    "tests/unit/dashboard/test_state_engines.py",
    "tests/unit/gpudeck/pool/test_openb.py::test_one_seed_gives_out_as_published",
    "tests/unit/gpudeck/pool/test_placement.py::test_it_finds_what_trying_all_finds",
    "tests/unit/gpudeck/pool/test_strategy_cost.py",
    "tests/unit/gpudeck/test_audit_chain.py::test_each_of_10_000_changes_is_found_and_named",
    "tests/unit/gpudeck/test_quota.py::test_none_that_is_more_specific_is_passed_over",
    "tests/unit/test_bench.py::test_each_group_runs",
    "tests/unit/test_packaging.py::test_kustomize_itself_makes_what_was_checked",
    "tests/unit/test_mutants.py::test_a_mutant_that_removes_no_guard_is_missed",
    "tests/unit/test_mutants.py::test_some_by_lot_are_caught",
)
# One real path each of what is otherwise checked before landing; one of many seeds.
TEST = (
    "tests/browser/test_fleet_page.py::test_what_control_sets_is_what_the_page_and_the_api_show",
    "tests/integration/test_agent_process.py::test_kill_9_loses_nothing_and_gives_no_number_twice",
    "tests/integration/test_demo.py::test_demo_json_says_what_is_there",
    "tests/integration/test_rules_act.py::test_the_idle_one_is_told_twice_and_ends_and_its_memory_is_back",
    "tests/integration/test_actions_escapes.py::test_who_flees_while_the_task_is_ended_ends_with_it[plain]",
    "tests/integration/test_limits_terminal.py::test_a_share_is_set_and_shown",
    "tests/integration/test_holds_and_keeps.py::test_a_hold_is_in_force_at_once_and_until_it_is_released",
    "tests/integration/test_terminal.py::test_a_reason_is_asked_for",
    "tests/integration/test_terminal.py::test_end_shows_asks_orders_and_follows",
    "tests/integration/test_terminal.py::test_every_outcome_has_its_exit_code[done]",
    "tests/unit/dashboard/runtime/test_state_store.py::test_a_step_that_fails_leaves_all_as_it_was[sqlite]",
    "tests/unit/dashboard/runtime/test_state_store.py::test_a_transaction_is_whole_or_not_there[sqlite]",
    "tests/unit/dashboard/runtime/test_state_store.py::test_another_thread_writes_over_a_connection_of_its_own[sqlite]",
    "tests/unit/dashboard/runtime/test_state_store.py::test_each_step_is_taken_once_and_what_was_there_stays[sqlite]",
    "tests/unit/dashboard/runtime/test_state_store.py::test_what_is_read_in_a_change_still_holds_at_its_end[sqlite]",
    "tests/unit/agent/backends/test_simulated_world.py::test_hours_are_believable[h100-n001]",
    "tests/unit/dashboard/automation/test_restarts.py::test_an_end_that_was_under_way_is_never_ordered_twice",
    "tests/unit/dashboard/automation/test_restarts.py::test_cooling_down_outlives_the_hub",
    "tests/unit/dashboard/automation/test_restarts.py::test_no_rung_twice_and_none_left_out",
    "tests/unit/dashboard/automation/test_rule_cordons.py::test_only_auto_does_it",
    "tests/unit/dashboard/automation/test_service.py::test_an_outcome_that_frightens_opens_the_breaker[unknown]",
)
# What runs with somebody else's server, provider or image: `make engines` has them alone, with
# their long forms; in `check` and `soak` they are as all others.
ENGINES = (*(f"tests/integration/test_{name}.py" for name in (
    "container", "install", "mirror", "oidc_provider", "postgres_hub", "prometheus", "receivers",
    "install_booted", "helm", "ldap", "s3_archive",
    "service_on_slurm", "slurm",
)), "tests/unit/agent/kubernetes/", "tests/unit/dashboard/mirror/test_otlp_messages.py",
    "tests/unit/dashboard/runtime/test_state_store.py",
    "tests/unit/dashboard/test_state_engines.py", "tests/unit/test_packaging.py")
CHECK = (*CHECK_FOLDERS, *CHECK_FILES, *CHECK_TESTS)
ROWS: dict[str, Tier] = {**dict.fromkeys(CHECK, "check"), **dict.fromkeys(TEST, "test")}


def tier_of(test: str, is_soak: bool) -> Tier:
    if is_soak:
        return "soak"
    fitting = [row for row in ROWS if test.startswith(row)]
    return ROWS[max(fitting, key=len)] if fitting else "test"


def may_hold(file: str, tier: str) -> bool:
    """Return whether a test of this file is of this tier: other files are not even imported."""
    return tier_of(f"{file}::", is_soak=False) == tier or any(
        row.startswith(f"{file}::") for row, row_tier in ROWS.items() if row_tier == tier)
