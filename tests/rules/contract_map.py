"""The contract, line by line, with the tests that check each line: `<file below tests/>::<test>`.

An id is a name that `built` finds in the programs (`envlog capture --name`, `config envhist.exclude`, `status 4`,
`python capture`) or, for promises that are not found there, a few words.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """A promise, and the tests that check it."""

    id: str
    says: str
    tests: tuple[str, ...]


AGENTS = "integrations/agents/test_called.py::"
FORK_PLAN = (
    "fork/test_fork.py::test_fork_writes_nothing_in_a_dry_run_and_refuses_another_plan_than_the_printed_one"
)

WORDS = (
    Line(
        "environment",
        "every path under the working tree, tracked, untracked and ignored",
        (
            "end_to_end/test_capture_is_true.py::test_every_kind_of_entry_is_captured",
            "end_to_end/test_capture_is_true.py::test_an_arbitrary_tree_is_captured",
        ),
    ),
    Line(
        "files matched by .envhistignore",
        "files that match it are not captured",
        ("end_to_end/test_capture_options.py::test_envhistignore_and_exclude_skip_paths",),
    ),
    Line(
        "snapshot",
        "a commit whose tree is the environment; later edits are in the next one and not in it",
        (
            "end_to_end/test_capture_is_true.py::test_arbitrary_edits_between_two_captures_are_in_the_second",
            "end_to_end/test_plain_git_reads_it.py::test_dulwich_reads_every_object",
        ),
    ),
    Line(
        "timeline",
        "the chain of snapshots of one working tree; plain git log is the history",
        (
            "end_to_end/test_plain_git_reads_it.py::test_git_log_is_the_history",
            "end_to_end/test_plain_git_reads_it.py::test_a_separate_git_directory_and_a_linked_worktree_have_timelines",
            "end_to_end/test_capture_leaves_alone.py::test_history_stays_with_a_moved_directory",
        ),
    ),
    Line(
        "intent",
        "the reason of a snapshot, verbatim; else the subject of the last commit",
        (
            "end_to_end/test_capture_options.py::test_an_intent_is_kept_word_for_word",
            "end_to_end/test_capture_options.py::test_snapshot_without_an_intent_names_the_code_commit",
        ),
    ),
    Line(
        "complete / partial",
        "a partial snapshot lists the paths that it does not contain, and why",
        ("end_to_end/test_capture_options.py::test_unreadable_paths_are_listed_and_the_rest_is_captured",),
    ),
    Line(
        "now",
        "the working tree, wherever a command takes a snapshot",
        ("history/test_resolve.py::test_working_tree_is_an_end_of_a_range_but_not_a_snapshot",),
    ),
    Line(
        "verdict",
        "a carried over or unsigned verdict never counts as the snapshot's own",
        (
            "history/test_resolve.py::test_copied_or_claimed_verdict_is_not_good",
            "cli/test_render.py::test_unsigned_check_result_is_marked",
        ),
    ),
)

REVISIONS = (
    Line(
        "revisions",
        "each spelling of the grammar finds its snapshot",
        (
            "history/test_resolve.py::test_each_spelling_of_the_grammar_finds_its_snapshot",
            "history/test_revisions.py::test_text_has_one_reading",
        ),
    ),
    Line(
        "revision <id>",
        "by id, which never changes; the hash that plain git shows is accepted too",
        ("history/test_resolve.py::test_rewritten_snapshot_is_found_by_its_id_and_by_its_new_hash",),
    ),
    Line(
        "revision <name>",
        "a name belongs to the snapshot that got it last",
        ("history/test_resolve.py::test_name_belongs_to_the_snapshot_that_got_it_last",),
    ),
    Line(
        "revision <time>",
        "a time covers its unit; a future time means yesterday; other text is an error",
        (
            "history/test_times.py::test_a_time_covers_its_whole_unit",
            "history/test_times.py::test_future_time_of_day_means_yesterday",
            "history/test_times.py::test_text_that_is_no_time_is_an_error",
        ),
    ),
    Line(
        "revision :/text",
        "the newest whose intent contains the text",
        ("history/test_resolve.py::test_whole_intent_is_found_before_a_part_of_one",),
    ),
    Line(
        "revision <code commit>",
        "resolved by git, then the newest snapshot taken there",
        ("history/test_resolve.py::test_git_decides_a_code_revision_as_a_whole",),
    ),
    Line(
        "revision <timeline>",
        "another timeline, own or fetched",
        ("history/test_resolve.py::test_other_timelines_are_found_by_name_id_and_unused_names",),
    ),
    Line(
        "revision a..b",
        "a range, as in git",
        (
            "history/test_ranges.py::test_range_has_two_ends_and_a_single_revision_one",
            "history/test_ranges.py::test_range_lists_snapshots_of_its_end_without_those_of_its_start",
        ),
    ),
    Line(
        "ambiguous revisions",
        "list the candidates",
        ("history/test_resolve.py::test_a_word_with_several_meanings_lists_them",),
    ),
    Line(
        "printed lines are revisions",
        "the id, time, name and intent of each printed line resolve to that line",
        ("history/test_law.py::test_every_printed_line_resolves_to_itself_or_lists_itself",),
    ),
    Line(
        "hints of revisions",
        "an unknown revision is an error with a hint what to type",
        ("history/test_resolve.py::test_unknown_revision_has_a_hint_that_fits",),
    ),
)

CAPTURE = (
    Line(
        "envlog capture",
        "takes a snapshot and prints timeline, id, intent and counts",
        ("end_to_end/test_capture_options.py::test_capture_prints_timeline_id_intent_and_counts",),
    ),
    Line(
        "envlog capture --message",
        "the intent, as a word or with -m",
        ("end_to_end/test_capture_options.py::test_intent_may_be_given_as_a_word_or_with_m_and_not_twice",),
    ),
    Line(
        "envlog capture --name",
        "names the snapshot; a name with another meaning is refused",
        (
            "end_to_end/test_capture_options.py::test_name_option_names_the_snapshot",
            "end_to_end/test_capture_options.py::test_name_with_another_meaning_is_refused_before_anything_is_stored",
        ),
    ),
    Line(
        "envlog capture --attach",
        "stores a file with the snapshot, sealed",
        ("end_to_end/test_capture_options.py::test_an_attachment_is_kept_sealed",),
    ),
    Line(
        "envlog capture --meta",
        "stores key=value with the snapshot",
        ("end_to_end/test_capture_options.py::test_meta_and_external_id_are_kept",),
    ),
    Line(
        "envlog capture --external-id",
        "stores the id of another program",
        ("end_to_end/test_capture_options.py::test_meta_and_external_id_are_kept",),
    ),
    Line(
        "envlog capture --if-changed",
        "takes no snapshot if nothing changed",
        ("end_to_end/test_capture_options.py::test_if_changed_takes_no_snapshot_without_changes",),
    ),
    Line(
        "envlog capture --strict",
        "refuses to take a partial snapshot",
        ("end_to_end/test_capture_options.py::test_strict_refuses_when_a_path_cannot_be_read",),
    ),
    Line(
        "envlog capture --force",
        "captures the home directory or /",
        ("end_to_end/test_capture_options.py::test_capture_of_home_requires_force",),
    ),
    Line(
        "envlog capture --dry-run",
        "prints sizes by directory, stores nothing",
        ("end_to_end/test_capture_options.py::test_dry_run_prints_and_stores_nothing",),
    ),
    Line(
        "envlog capture --porcelain",
        "prints only the full id",
        ("end_to_end/test_capture_options.py::test_porcelain_prints_the_full_id_only",),
    ),
    Line(
        "capture never loses a snapshot",
        "a damaged index, failing git, no identity: a warning and status 0",
        (
            "end_to_end/test_capture_leaves_alone.py::test_broken_index_causes_a_warning_and_a_complete_snapshot",
            "end_to_end/test_capture_leaves_alone.py::test_failing_git_commands_cause_warnings_and_a_complete_snapshot",
            "end_to_end/test_capture_leaves_alone.py::test_capture_without_an_identity_is_complete",
            "end_to_end/test_capture_leaves_alone.py::test_unborn_head_is_captured",
        ),
    ),
    Line(
        "capture changes nothing",
        "HEAD, index, status, stash, branches, config and files are unchanged, also inside a hook",
        (
            "end_to_end/test_capture_leaves_alone.py::test_capture_leaves_the_users_repository_unchanged",
            "end_to_end/test_capture_leaves_alone.py::test_capture_in_a_commit_hook_does_not_touch_the_index",
            "end_to_end/test_capture_leaves_alone.py::test_configuration_neither_changes_a_capture_nor_runs_a_command",
        ),
    ),
    Line(
        "capture is durable",
        "after a kill or on a full disk, the tip is the old or the new one",
        (
            "end_to_end/test_capture_survives.py::test_capture_killed_at_any_call_leaves_the_old_or_the_new_tip",
            "end_to_end/test_capture_survives.py::test_capture_on_a_failing_disk_publishes_nothing_and_prints_one_line",
        ),
    ),
    Line(
        "capture during gc",
        "a concurrent gc removes no object of a snapshot",
        ("end_to_end/test_capture_survives.py::test_gc_in_a_loop_removes_no_object_of_a_capture",),
    ),
    Line(
        "the time of a snapshot",
        "now, or GIT_COMMITTER_DATE",
        ("end_to_end/test_capture_options.py::test_time_of_a_snapshot_is_the_committer_date_if_set",),
    ),
    Line(
        "git_changed, env_changed",
        "git_changed lists git's changes, env_changed those between snapshots",
        (
            "end_to_end/test_capture_options.py::test_git_changed_lists_gits_changes_and_env_changed_the_snapshots",
        ),
    ),
    Line(
        "plain git reads it",
        "show, diff, log -p and worktree work; fsck and a strict remote accept it",
        (
            "end_to_end/test_plain_git_reads_it.py::test_git_show_and_diff_give_true_bytes",
            "end_to_end/test_plain_git_reads_it.py::test_git_worktree_checks_out_a_snapshot",
            "end_to_end/test_plain_git_reads_it.py::test_fsck_is_silent_and_a_strict_remote_accepts_the_history",
            "docs/test_recovery.py::test_every_command_of_the_page_succeeds",
        ),
    ),
)

CONFIG = (
    Line(
        "config envhist.timeline",
        "the timeline of this working tree's captures",
        ("end_to_end/test_capture_options.py::test_timeline_can_be_chosen",),
    ),
    Line(
        "config envhist.remote",
        "the remote of the history, if it differs from the code's",
        ("remote/test_push.py::test_configured_remote_is_used_for_the_history",),
    ),
    Line(
        "config envhist.uploadsize",
        "the most bytes in one push",
        ("remote/test_push.py::test_large_push_is_sent_in_parts_that_are_deleted_afterwards",),
    ),
    Line(
        "config envhist.largestobject",
        "larger objects are refused before a host refuses them",
        ("remote/test_push.py::test_too_large_object_is_refused_before_anything_is_sent",),
    ),
    Line(
        "config envhist.fetchmemory",
        "the memory limit of a fetch",
        ("remote/test_hostile_servers.py::test_fetch_refuses_bombs_within_its_limits",),
    ),
    Line(
        "config envhist.fetchtimeout",
        "a fetch ends after this time without data from the remote",
        ("remote/test_stopped.py::test_fetch_times_out_when_the_server_is_silent",),
    ),
    Line(
        "config envhist.pushtimeout",
        "a push ends after this time without data from the remote",
        ("remote/test_stopped.py::test_push_times_out_when_the_server_is_silent",),
    ),
    Line(
        "config envhist.exclude",
        "patterns in addition to .envhistignore",
        ("end_to_end/test_capture_options.py::test_envhistignore_and_exclude_skip_paths",),
    ),
    Line(
        "config envhist.fingerprint",
        "files recorded by their hash only",
        ("end_to_end/test_capture_options.py::test_a_fingerprinted_file_is_recorded_without_its_bytes",),
    ),
    Line(
        "config envhist.secret",
        "patterns whose content is sealed",
        ("end_to_end/test_capture_options.py::test_secret_files_are_sealed_before_they_are_stored",),
    ),
    Line(
        "config envhist.root",
        "additional roots",
        ("end_to_end/test_capture_options.py::test_additional_root_is_captured_below_its_name",),
    ),
    Line(
        "config envhist.service",
        "the commands to capture a server's state; only from the user's own configuration",
        (
            "services/test_services.py::test_failed_dump_gives_a_warning_and_the_snapshot_is_taken",
            "services/test_services.py::test_service_state_is_sealed_and_shares_unchanged_chunks",
            "services/test_services.py::test_commands_come_only_from_the_users_configuration",
        ),
    ),
    Line(
        "config envhist.budget",
        "the most new bytes of one capture; the largest files are skipped with a warning",
        ("end_to_end/test_capture_options.py::test_files_over_the_budget_are_skipped_with_a_warning",),
    ),
    Line(
        "config envhist.bigfile",
        "larger files are stored as chunks",
        ("end_to_end/test_capture_options.py::test_small_change_of_a_big_file_stores_few_new_chunks",),
    ),
)

ENVDIFF = (
    Line(
        "envdiff",
        "without arguments: newest against now; one: it against now; a..b or a b; prints the summary by default",
        (
            "cli/test_envdiff.py::test_revisions_are_read_as_git_diff_does",
            "cli/test_envdiff.py::test_default_output_is_the_summary",
            "cli/test_diffview.py::test_many_changes_fold_into_a_few_lines_of_the_terminals_width",
        ),
    ),
    Line(
        "envdiff, its changes",
        "changes that git sees, and those that only the manifest has",
        (
            "diff/test_compare_snapshots.py::test_any_two_trees_differ_in_what_was_described",
            "cli/test_envdiff.py::test_counts_of_a_capture_equal_those_of_a_diff",
        ),
    ),
    Line(
        "envdiff -- <pathspec>",
        "git's pathspecs, with their magic",
        (
            "cli/test_envdiff.py::test_pathspecs_are_relative_to_the_current_directory",
            "diff/test_compare_snapshots.py::test_pathspecs_agree_with_git_diff",
        ),
    ),
    Line(
        "envdiff now",
        "scans like a capture, and stores nothing",
        (
            "cli/test_envdiff.py::test_diff_with_now_stores_nothing",
            "cli/test_envdiff.py::test_patch_with_now_shows_new_contents",
        ),
    ),
    Line(
        "envdiff --stat",
        "git's layout",
        ("cli/test_diffview.py::test_stat_has_the_layout_of_git",),
    ),
    Line(
        "envdiff --name-only",
        "the paths",
        ("cli/test_diffview.py::test_lists_of_names_equal_gits",),
    ),
    Line(
        "envdiff --name-status",
        "letters and paths",
        ("cli/test_diffview.py::test_lists_of_names_equal_gits",),
    ),
    Line(
        "envdiff --raw",
        "git's raw format",
        ("cli/test_diffview.py::test_raw_format_equals_gits",),
    ),
    Line(
        "envdiff --patch",
        "git's own unified diff, with true names",
        (
            "cli/test_diffview.py::test_patch_of_plain_files_equals_gits",
            "cli/test_diffview.py::test_escaped_names_are_decoded_in_every_format",
            "cli/test_diffview.py::test_attributes_and_external_diff_programs_are_ignored",
        ),
    ),
    Line(
        "envdiff -z",
        "NUL-ended, unquoted",
        (
            "cli/test_diffview.py::test_lists_of_names_equal_gits",
            "cli/test_envdiff.py::test_unusual_names_are_quoted_as_configured_by_core_quotepath",
        ),
    ),
    Line(
        "envdiff --find-renames",
        "-M[n]",
        (
            "cli/test_envdiff.py::test_renames_are_detected_with_the_option",
            "cli/test_diffview.py::test_renamed_file_is_shown_as_git_does",
        ),
    ),
    Line(
        "envdiff --exit-code",
        "ends with 1 if there are differences",
        ("cli/test_envdiff.py::test_exit_code_is_1_for_differences",),
    ),
    Line(
        "envdiff --quiet",
        "prints nothing",
        ("cli/test_envdiff.py::test_exit_code_is_1_for_differences",),
    ),
    Line(
        "envdiff --only",
        "classes of changes",
        (
            "cli/test_envdiff.py::test_only_chooses_classes",
            "probes/test_sqlite.py::test_changes_of_a_database_are_shown_in_one_row",
            "probes/test_data_directories.py::test_cluster_is_listed_with_version_and_state",
        ),
    ),
    Line(
        "envdiff --reveal",
        "prints values of sealed files, which are masked otherwise",
        (
            "cli/test_envdiff.py::test_variables_of_sealed_files_are_shown_by_name",
            "cli/test_envdiff.py::test_sealed_file_without_key_is_marked",
        ),
    ),
    Line(
        "envdiff --json",
        "the answer matches the schema",
        (
            "cli/test_envdiff.py::test_json_equals_the_text_and_matches_the_schema",
            "cli/test_envdiff.py::test_an_error_under_json_is_json",
        ),
    ),
)

STATUS = (
    Line(
        "status 3",
        "refused, nothing changed; the error names the option that overrides it",
        (
            "end_to_end/test_capture_options.py::test_capture_of_home_requires_force",
            "end_to_end/test_capture_options.py::test_strict_refuses_when_a_path_cannot_be_read",
        ),
    ),
    Line(
        "status 129",
        "usage",
        ("end_to_end/test_capture_options.py::test_intent_may_be_given_as_a_word_or_with_m_and_not_twice",),
    ),
    Line(
        "status 130, 143",
        "stopped by a signal",
        ("crash/test_stopped.py::test_signal_at_any_time_ends_a_capture_with_its_status",),
    ),
)

LIST = (
    Line(
        "envlog",
        "lists the timeline, newest first",
        (
            "end_to_end/test_reading.py::test_list_shows_the_requested_snapshots",
            "cli/test_render.py::test_list_has_aligned_columns",
            "end_to_end/test_reading.py::test_list_before_the_first_capture_is_empty",
        ),
    ),
    Line(
        "envlog --max-count",
        "the number of snapshots; also -5, -n5",
        ("end_to_end/test_reading.py::test_list_shows_the_requested_snapshots",),
    ),
    Line(
        "envlog --since",
        "snapshots of this time or later",
        ("end_to_end/test_reading.py::test_list_shows_the_requested_snapshots",),
    ),
    Line(
        "envlog --until",
        "snapshots of this time or before",
        ("end_to_end/test_reading.py::test_list_shows_the_requested_snapshots",),
    ),
    Line(
        "envlog --find",
        "snapshots with this text in their summary",
        ("probes/test_package_changes.py::test_log_finds_the_snapshot_that_added_a_package",),
    ),
    Line(
        "envlog -S",
        "snapshots that changed how often files contain the text",
        ("end_to_end/test_content_search.py::test_text_search_finds_where_a_text_was_added_and_removed",),
    ),
    Line(
        "envlog --reveal",
        "-S and -G search sealed files too, for the owner of the key",
        (
            "history/test_search_contents.py::test_search_answers_as_git_does",
            "history/test_search_contents.py::test_sealed_files_are_searched_only_for_the_owner_of_the_key",
        ),
    ),
    Line(
        "envlog -G",
        "snapshots with a matching changed line",
        ("end_to_end/test_content_search.py::test_pattern_search_finds_changed_lines",),
    ),
    Line(
        "envlog --grep",
        "snapshots with a matching intent, name or note",
        ("end_to_end/test_reading.py::test_list_shows_the_requested_snapshots",),
    ),
    Line(
        "envlog --regexp-ignore-case",
        "ignores upper and lower case",
        ("end_to_end/test_reading.py::test_list_shows_the_requested_snapshots",),
    ),
    Line(
        "envlog --reverse",
        "oldest first",
        ("end_to_end/test_reading.py::test_list_shows_the_requested_snapshots",),
    ),
    Line(
        "envlog --all",
        "every timeline",
        ("end_to_end/test_reading.py::test_list_shows_the_requested_snapshots",),
    ),
    Line(
        "envlog --verdict",
        "snapshots by the result of their check",
        ("end_to_end/test_reading.py::test_list_shows_the_requested_snapshots",),
    ),
    Line(
        "envlog --trigger",
        "snapshots by their trigger",
        ("end_to_end/test_reading.py::test_list_shows_the_requested_snapshots",),
    ),
    Line(
        "envlog --graph",
        "draws forks and restores as lines",
        (
            "cli/test_symbols.py::test_a_graph_shows_forks_and_restores",
            "history/test_graph.py::test_every_lane_leads_to_its_parent",
        ),
    ),
    Line(
        "envlog install --shell",
        "installs man pages and completions that uv leaves out",
        ("integrations/test_shellfiles.py::test_linked_manual_and_completions_are_found",),
    ),
    Line(
        "envlog install --watcher",
        "starts the watcher, and captures start it again",
        (
            "watcher/test_install.py::test_installed_watcher_runs_and_is_in_the_status",
            "watcher/test_install.py::test_capture_starts_the_watcher_again",
            "watcher/test_captures.py::test_capture_scans_the_directory_that_changed",
        ),
    ),
    Line(
        "envlog uninstall --watcher",
        "stops the watcher",
        ("watcher/test_install.py::test_uninstalled_watcher_ends",),
    ),
    Line(
        "envlog uninstall --shell",
        "removes them again",
        ("integrations/test_shellfiles.py::test_uninstall_removes_only_our_links",),
    ),
    Line(
        "symbols",
        "ASCII letters are printed if symbols cannot be displayed",
        ("cli/test_symbols.py::test_ascii_letters_replace_symbols_without_moving_columns",),
    ),
    Line(
        "log.date",
        "git's own setting for the style of dates applies",
        ("cli/test_symbols.py::test_log_date_is_the_style_without_an_option",),
    ),
    Line(
        "envlog --no-fold",
        "one line for each capture of an agent's turn",
        ("end_to_end/test_folding.py::test_captures_of_a_turn_are_one_line",),
    ),
    Line(
        "envlog --fold",
        "folds the lines of a format, too",
        ("end_to_end/test_folding.py::test_list_has_day_headings_and_folds_captures_of_hooks",),
    ),
    Line(
        "envlog --oneline",
        "prints id and intent",
        ("end_to_end/test_reading.py::test_oneline_is_id_and_intent",),
    ),
    Line(
        "envlog --full",
        "prints all details",
        (
            "end_to_end/test_reading.py::test_full_shows_the_details_of_each_snapshot",
            "cli/test_render.py::test_full_view_has_all_fields",
        ),
    ),
    Line(
        "envlog --format",
        "placeholders of git and git-envhist",
        (
            "end_to_end/test_reading.py::test_format_has_placeholders_of_git_and_git_envhist",
            "cli/test_render.py::test_each_placeholder_is_replaced",
            "cli/test_render.py::test_template_of_the_contract_is_rendered",
        ),
    ),
    Line(
        "envlog --date",
        "git's styles",
        (
            "end_to_end/test_reading.py::test_dates_have_gits_styles",
            "cli/test_dates.py::test_dates_are_formatted_as_git_does",
        ),
    ),
    Line(
        "envlog --html",
        "writes one self-contained page",
        (
            "html/test_written.py::test_page_is_written_and_replaced",
            "html/test_browser.py::test_chosen_snapshot_shows_its_details",
        ),
    ),
    Line(
        "envlog --stat",
        "the changes of each snapshot, below it",
        (
            "end_to_end/test_reading.py::test_changes_are_shown_below_each_snapshot",
            "html/test_measured.py::test_sizes_agree_with_find",
        ),
    ),
    Line(
        "envlog --name-status",
        "the changes of each snapshot, below it",
        ("end_to_end/test_reading.py::test_changes_are_shown_below_each_snapshot",),
    ),
    Line(
        "envlog --name-only",
        "the changes of each snapshot, below it",
        ("end_to_end/test_reading.py::test_changes_are_shown_below_each_snapshot",),
    ),
    Line(
        "envlog --patch",
        "the changes of each snapshot, below it",
        ("end_to_end/test_reading.py::test_changes_are_shown_below_each_snapshot",),
    ),
    Line(
        "envlog --full-index",
        "full ids of contents",
        ("end_to_end/test_reading.py::test_changes_are_shown_below_each_snapshot",),
    ),
    Line("envlog -z", "records end with NUL", ("end_to_end/test_reading.py::test_z_ends_records_with_nul",)),
    Line(
        "envlog show",
        "prints the details, or with a path the stored content",
        ("end_to_end/test_reading.py::test_show_prints_details_and_with_a_path_the_stored_bytes",),
    ),
    Line(
        "envlog show --versions",
        "prints all versions of a file",
        (
            "cli/test_why.py::test_versions_of_a_file_are_printed_and_extracted",
            "cli/test_why.py::test_versions_before_a_removal_are_listed_too",
        ),
    ),
    Line(
        "envlog show --to",
        "writes each version into a file",
        ("cli/test_why.py::test_versions_of_a_file_are_printed_and_extracted",),
    ),
    Line(
        "envlog show --reveal",
        "does not mask the values in a sealed file",
        ("cli/test_why.py::test_versions_of_a_sealed_file_are_masked_unless_revealed",),
    ),
    Line(
        "envlog show --date",
        "git's styles",
        ("end_to_end/test_reading.py::test_show_prints_details_and_with_a_path_the_stored_bytes",),
    ),
    Line(
        "envlog name",
        "names a snapshot; a name equal to a subcommand is refused",
        ("end_to_end/test_reading.py::test_name_is_set_moved_and_removed",),
    ),
    Line(
        "envlog name --delete",
        "removes a name",
        ("end_to_end/test_reading.py::test_name_is_set_moved_and_removed",),
    ),
    Line(
        "envlog note",
        "adds a remark to a snapshot later",
        ("end_to_end/test_reading.py::test_note_is_shown_with_its_snapshot",),
    ),
    Line(
        "envlog note --message",
        "the text of the remark",
        ("end_to_end/test_reading.py::test_note_is_shown_with_its_snapshot",),
    ),
    Line(
        "envlog fork",
        "makes a linked worktree at a snapshot's code commit with the whole environment and a new timeline",
        (
            "fork/test_fork.py::test_fork_contains_the_whole_environment_and_git_status_is_right",
            "fork/test_fork.py::test_timeline_of_a_fork_begins_with_it_and_names_its_origin",
            "fork/test_fork.py::test_forks_of_one_snapshot_are_equal_and_independent",
            "fork/test_fork.py::test_one_of_two_forks_is_restored_into_the_original",
            "fork/test_fork.py::test_fork_is_an_orphan_when_the_code_commit_is_gone",
            "fork/test_fork.py::test_plain_directory_is_forked_into_another",
            "fork/test_fork.py::test_failed_fork_leaves_nothing",
            "fork/test_submodules.py::test_git_works_in_a_fork_and_its_submodules",
            "fork/test_submodules.py::test_commits_in_a_submodule_of_a_fork_change_nothing_outside_it",
            "fork/test_shared_blocks.py::test_unchanged_files_share_blocks_and_nothing_else",
        ),
    ),
    Line(
        "envlog fork --branch",
        "a new branch at the code commit",
        ("fork/test_fork.py::test_branch_is_created_on_request",),
    ),
    Line(
        "envlog fork --dry-run",
        "prints only the plan",
        (FORK_PLAN,),
    ),
    Line(
        "envlog fork --plan",
        "makes the fork only if the plan is the printed one",
        (FORK_PLAN,),
    ),
    Line(
        "python plan_fork",
        "returns the plan of a fork",
        (FORK_PLAN,),
    ),
    Line(
        "config envhist.forkplace",
        "the directory below which agents may make forks; by default next to the project",
        ("mcp/test_server.py::test_fork_is_refused_in_directories_of_programs_and_settings",),
    ),
    Line(
        "envlog fork --relocate",
        "rewrites the path of the original in the fork's files",
        (
            "fork/test_installed_programs.py::test_relocated_virtual_environment_runs_its_own_files",
            "fork/test_installed_programs.py::test_relocated_node_package_runs_its_own_files",
        ),
    ),
    Line(
        "envlog fork --allow-unsigned",
        "forks a snapshot that no key here signed",
        ("fork/test_fork.py::test_unsigned_snapshot_is_forked_only_with_option",),
    ),
    Line(
        "python around",
        "captures before and after, rolls back on an exception or a failing check",
        (
            "library/test_rounds.py::test_failed_work_is_captured_and_rolled_back",
            "library/test_rounds.py::test_failed_work_without_rollback_is_captured_and_stays",
            "library/test_rounds.py::test_work_is_rolled_back_when_its_check_fails",
            "library/test_rounds.py::test_error_of_the_work_has_a_note_when_the_rollback_fails",
        ),
    ),
    Line(
        "python page",
        "returns the page for a browser, or writes it to a file",
        ("library/test_verbs.py::test_page_is_returned_and_written_to_a_file",),
    ),
    Line(
        "python watch_or_timeout",
        "yields the captures of a watch, and None at least every given number of seconds",
        ("library/test_asynchronous.py::test_watch_ends_when_its_iteration_ends",),
    ),
    Line(
        "python tool",
        "a decorator that captures before and after each call of a tool",
        (
            "library/test_rounds.py::test_tool_is_captured_before_and_after_each_call",
            "library/test_rounds.py::test_intent_of_a_tool_call_is_cut",
        ),
    ),
    Line(
        "python tool_keywords",
        "returns the keywords of a capture that a tool causes",
        ("library/test_rounds.py::test_tool_is_captured_before_and_after_each_call",),
    ),
    Line(
        "python on",
        "adds a handler for an event; an error in a handler breaks nothing",
        ("library/test_rounds.py::test_handler_that_fails_receives_every_event_and_breaks_nothing",),
    ),
    Line(
        "python notify",
        "calls the handlers of an event",
        ("library/test_rounds.py::test_handler_that_fails_receives_every_event_and_breaks_nothing",),
    ),
    Line(
        "python recent",
        "returns recent changes, without any snapshot",
        ("library/test_rounds.py::test_log_selects_by_keywords_and_recent_needs_no_snapshot",),
    ),
    Line(
        "python run",
        "runs a command between two snapshots and stores its output and status",
        ("library/test_rounds.py::test_command_runs_between_two_snapshots",),
    ),
    Line(
        "python watch",
        "yields each capture after a change",
        ("library/test_rounds.py::test_watch_yields_each_capture_until_its_caller_stops",),
    ),
    Line(
        "python install",
        "installs the hooks of git and agents",
        ("library/test_rounds.py::test_hooks_are_installed_and_removed",),
    ),
    Line(
        "python uninstall",
        "removes the hooks",
        ("library/test_rounds.py::test_hooks_are_installed_and_removed",),
    ),
    Line(
        "python status",
        "returns which automatic captures are active",
        ("library/test_rounds.py::test_hooks_are_installed_and_removed",),
    ),
    Line(
        "python, import",
        "the import loads few modules and starts no process",
        (
            "library/test_import.py::test_import_of_the_package_loads_few_modules",
            "library/test_import.py::test_import_of_the_class_loads_no_library_and_starts_no_process",
        ),
    ),
    Line(
        "python, threads and forks",
        "one history works in many threads, and in forks of the host program",
        ("library/test_hosts.py::test_host_program_may_use_threads_and_forks",),
    ),
    Line(
        "python, asynchronous",
        "the verbs work as coroutines",
        (
            "library/test_asynchronous.py::test_verbs_work_as_coroutines",
            "library/test_asynchronous.py::test_cancellation_is_raised_when_the_verb_has_ended",
        ),
    ),
    Line(
        "python, examples",
        "the examples of the documentation are run",
        (
            "library/test_examples.py::test_examples_of_a_page_run",
            "library/test_examples.py::test_examples_of_the_verbs_run",
        ),
    ),
    Line(
        "python attach",
        "stores a conversation, tool outputs or files with an existing snapshot, sealed",
        (
            "tracking/test_keeping.py::test_attachment_added_later_is_returned_unchanged",
            "tracking/test_keeping.py::test_attachments_survive_gc_and_are_pushed_with_the_notes",
            "tracking/test_keeping.py::test_attachment_opens_only_with_its_key_and_at_its_snapshot",
        ),
    ),
    Line(
        "python get",
        "returns a snapshot with its attachments, byte for byte",
        (
            "tracking/test_keeping.py::test_attachment_added_later_is_returned_unchanged",
            "tracking/test_keeping.py::test_attachment_of_a_capture_is_returned_unchanged",
        ),
    ),
    Line(
        "python preview",
        "returns the plan of a restore with its consequences",
        ("restore/test_api.py::test_restore_undo_and_redo_return_results",),
    ),
    Line(
        "python write_to",
        "writes a snapshot into another directory",
        ("restore/test_api.py::test_snapshot_is_written_to_another_directory",),
    ),
    Line(
        "python continue_restore",
        "the same as --continue",
        ("restore/test_api.py::test_interrupted_restore_is_continued_or_aborted",),
    ),
    Line(
        "python abort_restore",
        "the same as --abort",
        ("restore/test_api.py::test_interrupted_restore_is_continued_or_aborted",),
    ),
    Line(
        "python attachments",
        "returns the attachments of a snapshot, byte for byte",
        ("tracking/test_doing.py::test_host_program_attaches_a_conversation_to_a_snapshot",),
    ),
    Line(
        "python fork",
        "returns another EnvHistory",
        ("fork/test_fork.py::test_fork_of_the_api_is_another_history",),
    ),
    Line(
        "envlog init",
        "makes a history for a plain directory, found from any directory below it and after a move",
        (
            "cli/test_init.py::test_history_without_git_works_as_in_a_repository",
            "cli/test_init.py::test_history_is_found_after_a_move",
            "cli/test_init.py::test_nearest_history_is_used",
            "cli/test_init.py::test_history_is_private_to_its_owner",
            "cli/test_init.py::test_git_finds_no_repository_there_and_no_code_commit_is_recorded",
        ),
    ),
    Line(
        "envlog init, in a git repository",
        "nothing has to be set up",
        (
            "cli/test_init.py::test_init_inside_a_git_repository_changes_nothing",
            "cli/test_init.py::test_directory_that_became_a_repository_names_its_old_history",
        ),
    ),
    Line(
        "envlog init --force",
        "also for the home directory and /",
        ("cli/test_init.py::test_home_directory_and_root_need_force",),
    ),
    Line(
        "envlog init --new",
        "begins another history; the previous one stays readable",
        (
            "cli/test_init.py::test_new_history_keeps_the_old_one",
            "cli/test_init.py::test_file_system_copy_is_distinguished_from_the_original",
        ),
    ),
    Line(
        "envlog init --adopt",
        "continues the history of a directory that no longer exists",
        (
            "cli/test_init.py::test_new_directory_at_the_same_path_needs_a_decision",
            "cli/test_init.py::test_copy_has_no_history_before_adopt",
            "cli/test_init.py::test_move_to_another_file_system_names_adopt",
        ),
    ),
    Line(
        "envlog mcp",
        "the verbs as tools with schemas and the values of --json; a restore takes the id of a shown plan",
        (
            "mcp/test_server.py::test_agent_captures_reads_plans_restores_and_undoes",
            "mcp/test_repair.py::test_client_with_the_tools_alone_repairs_the_environment",
            "mcp/test_server.py::test_missing_extra_is_one_error_line_with_a_hint",
        ),
    ),
    Line(
        "envlog browse",
        "the timeline on a terminal: summaries, differences, restore and undo",
        (
            "tui/test_terminal.py::test_list_is_left_and_changes_are_right",
            "tui/test_terminal.py::test_restore_is_planned_confirmed_and_undone",
        ),
    ),
    Line(
        "envlog mcp --read-only",
        "only the tools that change nothing",
        ("mcp/test_server.py::test_read_only_server_has_no_writing_tool",),
    ),
    Line(
        "envlog mcp --no-confirm",
        "carries out plans without asking the person",
        ("mcp/test_server.py::test_no_confirm_asks_nobody",),
    ),
    Line(
        "envlog mcp --http",
        "the same tools on the loopback address, for clients with the token",
        (
            "mcp/test_transports.py::test_agent_restores_over_http_with_the_token",
            "mcp/test_transports.py::test_server_on_a_port_answers_only_with_the_token_and_only_on_this_machine",
        ),
    ),
    Line(
        "envlog key",
        "shows, exports and imports keys",
        (
            "cli/test_key.py::test_key_lists_places_and_never_the_secret",
            "cli/test_key.py::test_key_is_imported_from_file_or_standard_input",
        ),
    ),
    Line(
        "envlog key --passphrase",
        "wraps an exported key with a passphrase, typed by a person",
        ("cli/test_key.py::test_passphrase_is_asked_on_a_terminal_only",),
    ),
    Line(
        "envlog key --output",
        "writes a new file that only its owner can read",
        ("cli/test_first_day.py::test_exported_key_is_readable_by_its_owner_only",),
    ),
    Line(
        "envlog key --passphrase-file",
        "reads the passphrase from a file; a wrong one is an authentication failure",
        ("cli/test_key.py::test_key_with_passphrase_opens_only_with_it",),
    ),
    Line(
        "envlog push",
        "sends a timeline, its notes and names; only grows it, or replaces its own with a lease",
        (
            "remote/test_push.py::test_push_sends_timeline_notes_and_names_over_every_transport",
            "remote/test_push.py::test_rewritten_timeline_replaces_our_earlier_push",
            "remote/test_push.py::test_push_never_replaces_a_timeline_of_another_writer",
            "remote/test_push.py::test_push_refuses_a_token_and_never_prints_it",
            "remote/test_push.py::test_push_does_not_change_user_data",
            "remote/test_push.py::test_interrupted_upload_is_continued",
        ),
    ),
    Line(
        "envlog push --dry-run",
        "prints what would be sent, sends nothing",
        ("remote/test_push.py::test_dry_run_sends_and_stores_nothing",),
    ),
    Line(
        "envlog push --yes",
        "sends what the first push lists",
        ("remote/test_push.py::test_first_push_lists_what_is_sent_and_needs_consent",),
    ),
    Line(
        "envlog push --delete",
        "deletes a timeline on the remote",
        ("remote/test_push.py::test_push_deletes_a_timeline_on_the_remote",),
    ),
    Line(
        "envlog push --allow",
        "sends a path with a token in it, or one that is too large",
        (
            "remote/test_push.py::test_push_refuses_a_token_and_never_prints_it",
            "remote/test_push.py::test_too_large_object_is_refused_before_anything_is_sent",
        ),
    ),
    Line(
        "envlog gc --force",
        "works also if the repository of another user's git process is hidden",
        ("git/test_process_access.py::test_error_names_process_user_and_directory",),
    ),
    Line(
        "envlog gc",
        "packs are few and small, objects that no snapshot needs are removed, everything else is unchanged",
        (
            "maintenance/test_collect.py::test_gc_keeps_every_snapshot_and_leaves_one_pack",
            "maintenance/test_collect.py::test_gc_frees_the_space_of_unreachable_objects",
            "maintenance/test_collect.py::test_objects_reachable_from_any_user_state_are_kept",
            "maintenance/test_collect.py::test_inherited_packs_of_a_clone_are_removed_and_needed_objects_kept",
            "maintenance/test_collect.py::test_git_gc_and_its_caches_work_after_gc",
            "maintenance/test_gc.py::test_gc_prints_its_result",
        ),
    ),
    Line(
        "envlog gc --prune",
        "removes unneeded objects of packs that were not used since this time",
        (
            "maintenance/test_gc.py::test_prune_accepts_times_like_git",
            "maintenance/test_collect.py::test_unreachable_objects_are_kept_for_two_weeks_by_default",
        ),
    ),
    Line(
        "envlog gc --no-prune", "only packs", ("maintenance/test_gc.py::test_prune_accepts_times_like_git",)
    ),
    Line(
        "envlog gc --empty-trash",
        "deletes dropped snapshots for good, at once",
        ("cli/test_first_day.py::test_emptying_the_trash_frees_space",),
    ),
    Line(
        "envlog gc --auto",
        "the daily run in the background",
        ("maintenance/test_gc.py::test_capture_starts_gc_once_a_day_without_waiting",),
    ),
    Line(
        "python gc",
        "packs, and removes unreachable objects",
        ("maintenance/test_gc.py::test_gc_prints_its_result",),
    ),
    Line(
        "python daily",
        "runs the daily upkeep",
        ("maintenance/test_gc.py::test_capture_starts_gc_once_a_day_without_waiting",),
    ),
    Line(
        "envlog du",
        "lists the space by snapshot, directory and class, and the exact space that dropping would free",
        (
            "maintenance/test_du.py::test_size_of_a_snapshot_equals_the_space_freed_by_its_drop",
            "maintenance/test_du.py::test_directory_frees_the_size_of_its_objects",
            "maintenance/test_du.py::test_snapshots_free_more_together_than_alone",
            "maintenance/test_du.py::test_du_prints_text_and_json",
        ),
    ),
    Line(
        "envlog du --max-count",
        "the number of rows",
        ("maintenance/test_du.py::test_du_prints_text_and_json",),
    ),
    Line(
        "python du",
        "the same as a verb",
        ("maintenance/test_du.py::test_snapshots_free_more_together_than_alone",),
    ),
    Line(
        "envlog fsck",
        "checks every byte, names damaged paths and snapshots, ends with 1; the daily run checks a share",
        (
            "maintenance/test_fsck.py::test_intact_history_has_no_faults",
            "maintenance/test_fsck.py::test_flipped_bit_is_reported_by_path_and_snapshot",
            "maintenance/test_fsck.py::test_repair_of_a_damaged_index_loses_nothing",
            "maintenance/test_fsck.py::test_repair_of_notes_keeps_everything_readable",
            "maintenance/test_fsck.py::test_repair_deletes_a_damaged_cache",
            "maintenance/test_fsck.py::test_daily_check_reads_a_share_and_stores_problems",
        ),
    ),
    Line(
        "envlog fsck --quick",
        "checks whether all objects exist",
        (
            "maintenance/test_fsck.py::test_truncated_pack_is_found_by_a_quick_check",
            "maintenance/test_fsck.py::test_missing_pack_is_found",
        ),
    ),
    Line(
        "envlog fsck --repair",
        "repairs what is possible, sets the rest aside; the user's git works again; nothing is deleted",
        (
            "maintenance/test_fsck.py::test_repair_recovers_objects_from_the_working_tree",
            "maintenance/test_fsck.py::test_repair_recovers_objects_from_a_remote",
            "maintenance/test_fsck.py::test_repair_replaces_a_bad_ref_by_its_history",
            "maintenance/test_fsck.py::test_repair_drops_a_lost_snapshot_and_keeps_the_others",
        ),
    ),
    Line(
        "python fsck",
        "the same as a verb",
        ("maintenance/test_fsck.py::test_daily_check_reads_a_share_and_stores_problems",),
    ),
    Line(
        "envlog fetch",
        "fetches timelines of a remote, contents on demand; hostile ones change nothing here",
        (
            "remote/test_fetch.py::test_fetch_works_over_every_transport_with_contents_on_demand",
            "remote/test_fetch.py::test_fetch_is_lazy_and_gets_contents_on_demand",
            "remote/test_fetch.py::test_server_without_partial_clone_sends_everything",
            "remote/test_fetch.py::test_fetch_does_not_change_the_user_repository",
            "remote/test_fetch.py::test_fetch_never_changes_our_own_timelines",
            "remote/test_fetch.py::test_hostile_objects_are_refused_with_their_pack",
            "remote/test_fetch.py::test_interrupted_fetch_keeps_complete_timelines_and_continues",
        ),
    ),
    Line(
        "envlog fetch --accept-rollback",
        "accepts timelines that the signed head does not cover",
        (
            "remote/test_heads.py::test_fetch_refuses_a_timeline_that_does_not_match_its_signed_head",
            "remote/test_heads.py::test_rollback_to_an_earlier_signed_state_is_reported_as_rollback",
            "remote/test_heads.py::test_ssh_signature_is_enough_for_a_colleague_without_the_key",
        ),
    ),
    Line(
        "envlog fetch --full",
        "with all contents",
        ("remote/test_fetch.py::test_full_fetch_needs_no_later_request",),
    ),
    Line(
        "config envhist.identity",
        "the file of the private key that opens data shared by others",
        ("secrets/test_recipients.py::test_recipient_needs_only_an_ssh_key",),
    ),
    Line(
        "config envhist.sign",
        "a push signs heads with an SSH key, too",
        (
            "remote/test_heads.py::test_ssh_signature_is_enough_for_a_colleague_without_the_key",
            "remote/test_heads.py::test_ssh_signature_of_an_unknown_signer_is_not_trusted",
            "remote/test_heads.py::test_push_without_a_usable_ssh_key_warns_and_sends",
        ),
    ),
    Line(
        "config envhist.autopush",
        "git push also pushes the history: in the background, with limits, never failing itself",
        (
            "remote/test_auto_push.py::test_auto_push_sends_captured_snapshots",
            "remote/test_auto_push.py::test_auto_push_sends_nothing_without_consent_and_status_reports_it",
            "remote/test_auto_push.py::test_git_push_neither_waits_for_auto_push_nor_fails_with_it",
            "remote/test_auto_push.py::test_user_hook_keeps_its_input_arguments_and_exit_status",
        ),
    ),
    Line(
        "envlog export",
        "writes chosen snapshots, their notes and names to one file that plain git can read",
        (
            "remote/test_export_and_import.py::test_exported_timeline_is_imported_unchanged",
            "remote/test_export_and_import.py::test_export_contains_only_the_chosen_snapshots",
            "remote/test_export_and_import.py::test_tar_and_git_read_an_export",
            "remote/test_export_and_import.py::test_export_and_import_do_not_change_user_data",
        ),
    ),
    Line(
        "envlog export --force",
        "overwrites an existing file",
        ("remote/test_export_and_import.py::test_export_does_not_replace_a_file_without_force",),
    ),
    Line(
        "envlog export --allow",
        "exports a path with a token in it",
        ("remote/test_export_and_import.py::test_export_refuses_a_token_in_plain_text",),
    ),
    Line(
        "envlog import",
        "imports the content of a file next to the own timelines, completely checked and treated as hostile",
        (
            "remote/test_export_and_import.py::test_import_extends_an_earlier_import_or_gets_its_own_name",
            "remote/test_export_and_import.py::test_hostile_export_is_refused_completely",
            "remote/test_export_and_import.py::test_other_tar_files_are_refused",
            "remote/test_export_and_import.py::test_flipped_bit_is_detected",
        ),
    ),
    Line(
        "envlog import --as",
        "under another name",
        ("remote/test_export_and_import.py::test_remote_and_import_never_share_a_name",),
    ),
    Line(
        "python push",
        "the same as a verb",
        ("remote/test_push.py::test_push_sends_timeline_notes_and_names_over_every_transport",),
    ),
    Line(
        "python fetch",
        "the same as a verb",
        ("remote/test_fetch.py::test_fetch_works_over_every_transport_with_contents_on_demand",),
    ),
    Line(
        "python export",
        "the same as a verb",
        ("remote/test_export_and_import.py::test_exported_timeline_is_imported_unchanged",),
    ),
    Line(
        "python import_",
        "the same as a verb",
        ("remote/test_export_and_import.py::test_exported_timeline_is_imported_unchanged",),
    ),
    Line(
        "revision origin/<timeline>",
        "a fetched timeline, unsigned until its key is imported",
        (
            "remote/test_fetch.py::test_fetched_snapshot_is_unsigned_without_its_key_and_trusted_with_it",
            "remote/test_fetch.py::test_fetched_snapshot_is_compared_with_now",
        ),
    ),
    Line(
        "envlog key --use",
        "seals new files with an imported key",
        ("cli/test_key.py::test_imported_key_seals_new_files_with_use",),
    ),
    Line(
        "envlog help",
        "prints the short help of a subcommand",
        ("cli/test_programs.py::test_a_subcommand_has_its_own_short_help",),
    ),
    Line(
        "did you mean",
        "words of other tools get a hint",
        ("cli/test_programs.py::test_word_of_another_tool_gets_a_hint",),
    ),
    Line(
        "text on a terminal",
        "names, intents and notes are escaped",
        (
            "cli/test_terminal.py::test_control_characters_are_escaped",
            "cli/test_render.py::test_control_characters_in_an_intent_are_escaped",
        ),
    ),
    Line(
        "each printed line resolves",
        "by id, time, name and intent, as typed",
        ("end_to_end/test_reading.py::test_snapshot_is_found_by_id_time_name_and_intent",),
    ),
)

DIFF = (
    Line(
        "envdiff",
        "prints the summary between two snapshots; with one or none: against now",
        (
            "cli/test_envdiff.py::test_revisions_are_read_as_git_diff_does",
            "cli/test_envdiff.py::test_default_output_is_the_summary",
            "cli/test_envdiff.py::test_diff_with_now_stores_nothing",
            "cli/test_diffview.py::test_many_changes_fold_into_a_few_lines_of_the_terminals_width",
        ),
    ),
    Line(
        "envdiff --stat", "has the layout of git", ("cli/test_diffview.py::test_stat_has_the_layout_of_git",)
    ),
    Line(
        "envdiff --name-only", "prints the paths", ("cli/test_diffview.py::test_lists_of_names_equal_gits",)
    ),
    Line(
        "envdiff --name-status",
        "prints the paths and the kinds of changes",
        ("cli/test_diffview.py::test_lists_of_names_equal_gits",),
    ),
    Line(
        "envdiff --raw",
        "prints the format of git diff --raw",
        ("cli/test_diffview.py::test_raw_format_equals_gits",),
    ),
    Line(
        "envdiff --patch",
        "prints a patch that can be applied",
        (
            "cli/test_diffview.py::test_patch_of_plain_files_equals_gits",
            "cli/test_diffview.py::test_patch_of_plain_files_can_be_applied",
        ),
    ),
    Line(
        "envdiff --full-index",
        "prints full ids in a patch, as git does",
        ("cli/test_diffview.py::test_patch_of_plain_files_equals_gits",),
    ),
    Line(
        "envdiff -z",
        "prints names ended by NUL, unquoted",
        ("cli/test_diffview.py::test_lists_of_names_equal_gits",),
    ),
    Line(
        "envdiff --find-renames",
        "shows a moved file as one change",
        (
            "cli/test_envdiff.py::test_renames_are_detected_with_the_option",
            "cli/test_envdiff.py::test_a_similarity_is_read_as_git_reads_it",
        ),
    ),
    Line(
        "envdiff --exit-code",
        "ends with 1 if there are differences",
        ("cli/test_envdiff.py::test_exit_code_is_1_for_differences",),
    ),
    Line(
        "envdiff --quiet",
        "prints nothing",
        ("cli/test_envdiff.py::test_exit_code_is_1_for_differences",),
    ),
    Line(
        "envdiff --only",
        "classes of changes",
        (
            "cli/test_envdiff.py::test_only_chooses_classes",
            "probes/test_package_changes.py::test_packages_are_shown_by_place_with_versions",
            "probes/test_ecosystems.py::test_names_with_slashes_are_shown_with_their_place",
            "probes/test_database_clients.py::test_installed_database_and_clients_are_listed_when_git_sees_no_change",
            "probes/test_declared.py::test_summary_names_packages_installed_by_hand",
            "probes/test_configuration.py::test_changed_keys_of_tracked_and_ignored_configuration_are_shown",
            "probes/test_services.py::test_started_moved_and_stopped_server_is_shown",
            "probes/test_required_tool_versions.py::test_changed_required_versions_are_shown",
        ),
    ),
    Line(
        "envdiff --no-fold",
        "between two machines: also lists the normal differences, which are only counted otherwise",
        (
            "remote/test_works_here.py::test_failure_on_another_machine_is_inspected_after_a_fetch",
            "remote/test_works_here.py::test_fetched_machine_is_shown_completely",
            "diff/test_machine_differences.py::test_each_change_is_listed_or_grouped_separately",
        ),
    ),
    Line(
        "envdiff --reveal",
        "prints values of sealed files with the key",
        (
            "cli/test_diffview.py::test_reveal_shows_values_with_the_key",
            "cli/test_diffview.py::test_a_sealed_file_of_variables_shows_keys_and_no_value",
        ),
    ),
    Line(
        "envdiff pathspecs",
        "work like git's, magic included",
        ("cli/test_envdiff.py::test_pathspecs_are_relative_to_the_current_directory",),
    ),
)

EVERY = (
    Line(
        "every -C",
        "works as if started in that directory",
        ("end_to_end/test_reading.py::test_repository_is_found_by_option_and_by_gits_variables",),
    ),
    Line(
        "every --json",
        "one versioned schema, also for errors",
        (
            "end_to_end/test_reading.py::test_json_is_one_array_newest_first_or_lines",
            "cli/test_envdiff.py::test_json_equals_the_text_and_matches_the_schema",
            "cli/test_programs.py::test_error_with_json_is_an_object_on_standard_output",
            "end_to_end/test_capture_options.py::test_json_describes_the_snapshot",
        ),
    ),
    Line(
        "every --color",
        "always, never, auto; NO_COLOR, FORCE_COLOR",
        (
            "end_to_end/test_reading.py::test_colour_is_used_only_if_requested",
            "cli/test_output.py::test_colour_option_wins_over_environment_and_configuration",
        ),
    ),
    Line(
        "every --no-pager",
        "no pager",
        ("end_to_end/test_reading.py::test_pager_is_not_used_without_a_terminal",),
    ),
    Line(
        "every --quiet",
        "for all changing commands: prints only warnings and errors",
        ("cli/test_quiet.py::test_quiet_prints_only_warnings_and_errors",),
    ),
    Line(
        "every -h",
        "a short help",
        (
            "cli/test_programs.py::test_short_help_is_printed_to_standard_output",
            "cli/test_programs.py::test_help_needs_no_repository",
        ),
    ),
    Line(
        "every --version",
        "prints the version of this program",
        ("cli/test_programs.py::test_every_command_prints_its_version",),
    ),
    Line(
        "every --help",
        "opens the man page",
        (
            "cli/test_programs.py::test_the_long_help_without_a_terminal_is_the_bundled_text",
            "cli/test_pages.py::test_man_page_has_every_option_and_no_other",
        ),
    ),
    Line(
        "every --",
        "everything after it is a path",
        ("cli/test_argv.py::test_words_after_the_separator_are_unchanged",),
    ),
    Line(
        "status 0",
        "success, also with a partial snapshot",
        ("end_to_end/test_capture_options.py::test_unreadable_paths_are_listed_and_the_rest_is_captured",),
    ),
    Line(
        "status 1",
        "there are differences (with --exit-code)",
        ("cli/test_envdiff.py::test_exit_code_is_1_for_differences",),
    ),
    Line(
        "status 4",
        "no such snapshot, with a hint",
        (
            "end_to_end/test_reading.py::test_unknown_revision_is_status_4_with_a_hint",
            "cli/test_envdiff.py::test_a_wrong_revision_is_status_4_with_a_hint",
        ),
    ),
    Line(
        "status 128",
        "failed, with one line and a hint; never a traceback",
        (
            "cli/test_programs.py::test_error_outside_a_repository_has_a_hint",
            "cli/test_programs.py::test_unexpected_exception_is_one_line_and_a_report",
        ),
    ),
)

RESTORE = (
    Line(
        "envrestore",
        "restores a snapshot after saving the current state; without a revision it only prints",
        (
            "restore/test_programs.py::test_restore_and_undo_return_every_file",
            "restore/test_programs.py::test_likely_snapshots_are_listed_without_a_revision",
            "restore/test_programs.py::test_unchanged_file_is_not_touched_by_the_program",
            "restore/test_programs.py::test_path_excluded_from_the_snapshot_is_unchanged",
            "restore/test_programs.py::test_path_excluded_now_is_not_overwritten",
        ),
    ),
    Line(
        "envrestore --dry-run",
        "prints the plan and changes nothing; with --json as data",
        ("restore/test_programs.py::test_dry_run_prints_the_plan_and_changes_nothing",),
    ),
    Line(
        "envrestore --to",
        "writes into another directory and changes nothing here",
        (
            "restore/test_programs.py::test_snapshot_is_written_to_another_directory_without_changing_the_environment",
            "restore/test_unsigned.py::test_trusted_snapshot_is_restored_completely",
            "restore/test_unsigned.py::test_set_id_bits_and_owners_are_not_restored",
        ),
    ),
    Line(
        "envrestore --plan",
        "restores only if the plan is the shown one",
        ("mcp/test_server.py::test_stale_plan_is_not_carried_out",),
    ),
    Line(
        "envrestore --keep-new",
        "keeps newer files",
        ("restore/test_programs.py::test_new_files_and_tracked_files_can_be_kept",),
    ),
    Line(
        "envrestore --keep-tracked",
        "keeps files that HEAD tracks",
        (
            "restore/test_programs.py::test_new_files_and_tracked_files_can_be_kept",
            "restore/test_programs.py::test_tracked_files_that_differ_from_head_are_counted",
        ),
    ),
    Line(
        "envrestore --only",
        "restores only classes of changes",
        ("restore/test_programs.py::test_pathspecs_and_classes_select_paths",),
    ),
    Line(
        "envrestore --head",
        "moves HEAD too if git would allow it",
        (
            "restore/test_programs.py::test_head_moves_when_requested",
            "restore/test_head.py::test_continue_and_abort_also_set_head_when_the_restore_was_killed_at_its_end",
        ),
    ),
    Line(
        "envrestore --relocate",
        "rewrites the path of a fork in restored files to this one",
        (
            "fork/test_installed_programs.py::test_relocated_fork_is_restored_and_runs_the_original_files",
            "fork/test_installed_programs.py::test_restore_from_a_relocated_fork_warns_about_its_paths",
        ),
    ),
    Line(
        "envrestore --services",
        "runs the configured stop, restore and start commands",
        (
            "services/test_services.py::test_restore_loads_the_state_and_undo_reverts_it",
            "services/test_services.py::test_restore_is_refused_before_any_service_is_stopped",
            "services/test_services.py::test_failed_service_command_has_its_own_exit_status",
            "services/test_real_servers.py::test_running_postgresql_is_dumped_and_restored",
            "services/test_real_servers.py::test_redis_is_stopped_restored_and_started",
        ),
    ),
    Line(
        "envrestore --attachments",
        "restores attachments",
        ("restore/test_programs.py::test_attachments_are_written_back",),
    ),
    Line(
        "envrestore --force",
        "overrides the refusals that name it",
        (
            "restore/test_programs.py::test_open_database_is_refused_by_name",
            "restore/test_programs.py::test_home_directory_is_not_restored_without_force",
            "restore/test_unsigned.py::test_links_that_lead_outside_are_not_restored_without_force",
        ),
    ),
    Line(
        "envrestore --allow-unsigned",
        "restores a snapshot that no key here signed",
        (
            "restore/test_programs.py::test_unsigned_snapshot_is_refused_without_option",
            "restore/test_unsigned.py::test_unsigned_snapshot_restored_in_place_is_reduced_and_keeps_existing_files",
            "restore/test_unsigned.py::test_warning_about_programs_is_printed_once",
        ),
    ),
    Line(
        "envrestore --roots",
        "changes additional roots, too",
        (
            "restore/test_unsigned_roots.py::test_unsigned_snapshot_changes_no_additional_root_without_option",
            "restore/test_unsigned_roots.py::test_unsigned_snapshot_changes_additional_root_with_option",
        ),
    ),
    Line(
        "envrestore --undo",
        "undoes a restore",
        ("restore/test_programs.py::test_restore_and_undo_return_every_file",),
    ),
    Line(
        "envrestore --redo",
        "redoes the last undo",
        ("restore/test_programs.py::test_restore_and_undo_return_every_file",),
    ),
    Line(
        "envrestore --continue",
        "continues an interrupted restore",
        ("restore/test_programs.py::test_interrupted_restore_is_reported_by_the_next_command",),
    ),
    Line(
        "envrestore --abort",
        "aborts an interrupted restore",
        ("restore/test_programs.py::test_interrupted_restore_can_be_aborted",),
    ),
    Line(
        "envlog recent",
        "without any snapshot: lists recent changes by change times and logs, and prints what they cannot show",
        (
            "recent/test_recent.py::test_recent_lists_changes_and_writes_nothing",
            "recent/test_recent.py::test_recent_works_in_a_directory_without_git",
            "recent/test_recent.py::test_recent_reads_rotated_logs",
        ),
    ),
    Line(
        "envlog run",
        "runs a command between two snapshots, stores its status and output, and passes them on",
        (
            "integrations/test_run_with_snapshots.py::test_run_captures_before_and_after_and_returns_the_command_status",
            "integrations/test_run_with_snapshots.py::test_command_on_a_terminal_gets_a_terminal_and_ctrl_c",
            "integrations/test_run_with_snapshots.py::test_command_is_not_run_when_the_first_capture_fails",
        ),
    ),
    Line(
        "envlog run --message",
        "the intent of the run",
        (
            "integrations/test_run_with_snapshots.py::test_run_captures_before_and_after_and_returns_the_command_status",
        ),
    ),
    Line(
        "envlog run --verify",
        "checks the result; the status stays that of the command",
        ("integrations/test_run_with_snapshots.py::test_run_verifies_the_second_snapshot",),
    ),
    Line(
        "envlog watch",
        "captures when the environment has settled after a change",
        (
            "integrations/test_watch.py::test_watch_captures_changes_once_they_settle",
            "integrations/test_watch.py::test_watch_polls_without_enough_inotify_watches",
            "integrations/test_watch.py::test_captures_are_delayed_at_the_hourly_byte_limit",
        ),
    ),
    Line(
        "envlog watch --settle",
        "the time without changes before a capture",
        ("integrations/test_watch.py::test_watch_captures_changes_once_they_settle",),
    ),
    Line(
        "envlog drop",
        "drops snapshots; all others and their ids are unchanged",
        (
            "retention/test_drop.py::test_dropped_snapshot_is_gone_and_others_are_unchanged",
            "retention/test_drop.py::test_verdict_is_carried_to_equal_content_after_a_rewrite",
            "retention/test_drop.py::test_tasks_and_effects_stay_on_the_timeline",
        ),
    ),
    Line(
        "envlog drop --dry-run",
        "prints the snapshots, and drops nothing",
        ("retention/test_drop.py::test_drop_and_undrop_print_results_and_hints",),
    ),
    Line(
        "envlog undrop",
        "restores dropped snapshots to their former positions; without arguments, lists the trash",
        (
            "retention/test_drop.py::test_undropped_snapshot_has_its_former_position",
            "retention/test_drop.py::test_drop_and_undrop_print_results_and_hints",
        ),
    ),
    Line(
        "envlog undrop --all",
        "restores the whole trash",
        ("retention/test_drop.py::test_capture_works_after_everything_was_dropped",),
    ),
    Line(
        "envlog undrop --dry-run",
        "prints the snapshots, and restores nothing",
        ("retention/test_drop.py::test_drop_and_undrop_print_results_and_hints",),
    ),
    Line(
        "python drop",
        "drops snapshots",
        ("retention/test_drop.py::test_undropped_snapshot_has_its_former_position",),
    ),
    Line(
        "python undrop",
        "restores dropped snapshots",
        ("retention/test_drop.py::test_undropped_snapshot_has_its_former_position",),
    ),
    Line(
        "envlog prune",
        "applies a retention policy and prints the reasons",
        (
            "retention/test_prune.py::test_dry_run_prints_the_same_decisions_with_reasons",
            "retention/test_policy.py::test_annotated_snapshots_are_kept",
            "retention/test_prune.py::test_trash_expires_after_thirty_days_and_frees_its_space",
        ),
    ),
    Line(
        "envlog prune --dry-run",
        "prints the same decisions, and drops nothing",
        ("retention/test_prune.py::test_dry_run_prints_the_same_decisions_with_reasons",),
    ),
    Line(
        "envlog prune --keep-last",
        "keeps the n newest",
        (
            "retention/test_policy.py::test_last_n_snapshots_are_kept",
            "retention/test_prune.py::test_dry_run_prints_the_same_decisions_with_reasons",
        ),
    ),
    Line(
        "envlog prune --keep-hourly",
        "keeps the newest of each of n hours",
        (
            "retention/test_policy.py::test_newest_of_each_hour_day_and_week_is_kept_and_empty_periods_do_not_count",
            "retention/test_prune.py::test_dry_run_prints_the_same_decisions_with_reasons",
        ),
    ),
    Line(
        "envlog prune --keep-daily",
        "keeps the newest of each of n days",
        (
            "retention/test_policy.py::test_newest_of_each_hour_day_and_week_is_kept_and_empty_periods_do_not_count",
            "retention/test_prune.py::test_dry_run_prints_the_same_decisions_with_reasons",
        ),
    ),
    Line(
        "envlog prune --keep-weekly",
        "keeps the newest of each of n weeks",
        (
            "retention/test_policy.py::test_newest_of_each_hour_day_and_week_is_kept_and_empty_periods_do_not_count",
            "retention/test_prune.py::test_dry_run_prints_the_same_decisions_with_reasons",
        ),
    ),
    Line(
        "envlog prune --all",
        "every timeline of the repository",
        ("retention/test_prune.py::test_all_timelines_are_pruned_on_request",),
    ),
    Line(
        "config envhist.keeplast",
        "the policy without options",
        (
            "retention/test_prune.py::test_configured_policy_applies_without_options",
            "retention/test_prune.py::test_daily_run_prunes_by_the_configured_policy",
        ),
    ),
    Line(
        "config envhist.keephourly",
        "the policy without options",
        (
            "retention/test_prune.py::test_configured_policy_applies_without_options",
            "retention/test_prune.py::test_daily_run_prunes_by_the_configured_policy",
        ),
    ),
    Line(
        "config envhist.keepdaily",
        "the policy without options",
        (
            "retention/test_prune.py::test_configured_policy_applies_without_options",
            "retention/test_prune.py::test_daily_run_prunes_by_the_configured_policy",
        ),
    ),
    Line(
        "config envhist.keepweekly",
        "the policy without options",
        (
            "retention/test_prune.py::test_configured_policy_applies_without_options",
            "retention/test_prune.py::test_daily_run_prunes_by_the_configured_policy",
        ),
    ),
    Line(
        "python prune",
        "prunes by a policy",
        ("retention/test_prune.py::test_snapshot_named_during_a_prune_is_kept",),
    ),
    Line(
        "python thin",
        "runs the automatic daily prune",
        (
            "retention/test_prune.py::test_daily_run_prunes_by_the_configured_policy",
            "retention/test_prune.py::test_size_limit_drops_the_oldest_and_purges_the_trash",
        ),
    ),
    Line(
        "envlog purge",
        "erases a path from every object; warns if it was pushed",
        (
            "retention/test_purge.py::test_purged_file_is_nowhere_and_all_else_is_unchanged",
            "retention/test_purge.py::test_purge_erases_every_kind_of_entry",
            "retention/test_purge.py::test_purge_covers_the_trash_and_every_timeline",
            "retention/test_purge.py::test_purge_reports_and_keeps_objects_of_others",
            "retention/test_purge.py::test_purge_deletes_fetched_timelines_and_reports_pushed_ones",
        ),
    ),
    Line(
        "envlog purge --dry-run",
        "prints what contains the path, and erases nothing",
        ("retention/test_purge.py::test_dry_run_erases_nothing_and_reports_unknown_paths",),
    ),
    Line(
        "envlog key --reseal",
        "afterwards only the new key opens the history",
        ("secrets/test_key_places.py::test_only_the_new_key_opens_a_resealed_history",),
    ),
    Line(
        "config envhist.keyin",
        "stores keys only in the user's configuration",
        (
            "secrets/test_key_places.py::test_key_in_home_is_in_no_copy_of_the_directory",
            "secrets/test_key_places.py::test_keys_are_moved_to_the_configuration_home_by_the_next_capture",
        ),
    ),
    Line(
        "envlog purge --force",
        "works also if the repository of another user's git process is hidden",
        ("git/test_process_access.py::test_error_names_process_user_and_directory",),
    ),
    Line(
        "envlog purge --variable-names",
        "erases names of variables that were stored without being sealed",
        ("secrets/test_variable_names.py::test_unsealed_names_are_reported_once_and_purged",),
    ),
    Line(
        "python purge",
        "erases a path",
        ("retention/test_purge.py::test_purged_path_is_nowhere_after_any_series",),
    ),
    Line(
        "envlog task",
        "records progress on the timeline, in exactly five words",
        (
            "tracking/test_doing.py::test_tasks_are_recorded_and_read_by_another_process",
            "tracking/test_doing.py::test_unknown_status_of_a_task_is_an_error",
        ),
    ),
    Line(
        "envlog resume",
        "prints the first task that is neither completed nor skipped, and the snapshot where it starts",
        ("tracking/test_doing.py::test_resume_returns_the_next_task_and_its_start",),
    ),
    Line(
        "envlog task --definition",
        "the definition of the agent that reports a task",
        ("tracking/test_resuming.py::test_resume_under_another_definition_is_refused_unless_forced",),
    ),
    Line(
        "envlog resume --definition",
        "the definition of the agent that continues; another one is refused",
        (
            "tracking/test_resuming.py::test_resume_under_another_definition_is_refused_unless_forced",
            "tracking/test_resuming.py::test_python_agent_must_have_the_recorded_definition",
        ),
    ),
    Line(
        "envlog resume --force",
        "resumes under another definition",
        ("tracking/test_resuming.py::test_resume_under_another_definition_is_refused_unless_forced",),
    ),
    Line(
        "resume under the next version",
        "a task begun by one version of an agent is finished by the next; later formats are refused, earlier ones read",
        (
            "tracking/test_resuming.py::test_task_begun_by_one_version_is_finished_by_the_next",
            "tracking/test_resuming.py::test_task_record_of_a_later_version_is_refused_and_of_an_earlier_one_read",
            "tracking/test_resuming.py::test_snapshot_of_a_later_format_is_refused_and_others_are_listed",
        ),
    ),
    Line(
        "envlog observe",
        "records a checkpoint that the platform made alone, with its own time",
        (
            "compat/test_workbench.py::test_observed_checkpoints_are_recorded_manually_and_in_json",
            "compat/test_workbench.py::test_platform_checkpoints_are_listed_as_observed",
        ),
    ),
    Line(
        "envlog observe --at",
        "the time of the checkpoint",
        ("compat/test_workbench.py::test_observed_checkpoints_are_recorded_manually_and_in_json",),
    ),
    Line(
        "envlog observe --message",
        "the platform's text about it",
        ("compat/test_workbench.py::test_observed_checkpoints_are_recorded_manually_and_in_json",),
    ),
    Line(
        "envlog observe --source",
        "the name of the platform",
        ("compat/test_workbench.py::test_observed_checkpoints_are_recorded_manually_and_in_json",),
    ),
    Line(
        "envlog observe --list",
        "lists the recorded checkpoints",
        ("compat/test_workbench.py::test_observed_checkpoints_are_recorded_manually_and_in_json",),
    ),
    Line(
        "config envhist.platformlist",
        "the command that lists the checkpoints of the platform",
        (
            "compat/test_workbench.py::test_platform_checkpoints_are_listed_as_observed",
            "compat/test_workbench.py::test_platform_lists_are_parsed",
            "compat/test_workbench.py::test_failures_are_reported_and_lose_nothing",
        ),
    ),
    Line(
        "config envhist.platformcreate",
        "the command that makes a checkpoint and prints its id",
        ("compat/test_workbench.py::test_platform_checkpoint_is_created_with_ours_and_provides_the_id",),
    ),
    Line(
        "revision <external id>",
        "the id in another program",
        ("compat/test_workbench.py::test_external_id_finds_the_snapshot",),
    ),
    Line(
        "workbench",
        "checkpoint create, list, info, delete and restore by these verbs",
        (
            "compat/test_workbench.py::test_checkpoints_are_created_listed_shown_restored_and_deleted",
            "docs/test_workbench.py::test_commands_of_the_page_print_the_shown_output",
        ),
    ),
    Line(
        "envlog effect",
        "records an action outside the machine with the status of its command",
        (
            "tracking/test_doing.py::test_effect_is_noted_before_it_happens_and_with_its_status",
            "tracking/test_doing.py::test_restore_lists_the_effects_that_it_does_not_undo",
        ),
    ),
    Line(
        "envlog effect --irreversible",
        "asks first, and does nothing if nobody can be asked",
        ("tracking/test_doing.py::test_irreversible_effect_happens_only_after_a_confirmation",),
    ),
    Line(
        "envlog effect --yes",
        "does not ask",
        ("tracking/test_doing.py::test_irreversible_effect_happens_only_after_a_confirmation",),
    ),
    Line(
        "python tasks",
        "the tasks of a timeline",
        ("tracking/test_doing.py::test_tasks_are_recorded_and_read_by_another_process",),
    ),
    Line(
        "python add_records",
        "adds records to the note of a snapshot",
        ("tracking/test_doing.py::test_invalid_record_is_skipped",),
    ),
    Line(
        "python effects",
        "actions outside the machine; a handler may refuse one before it happens",
        ("tracking/test_doing.py::test_host_program_may_refuse_an_effect",),
    ),
    Line(
        "envlog undo",
        "restores the newest earlier state that differs, or goes back several steps",
        (
            "restore/test_programs.py::test_undo_steps_through_snapshots_and_redo_returns_to_the_uncaptured_state",
        ),
    ),
    Line(
        "envlog undo --dry-run",
        "prints only the plan",
        ("restore/test_programs.py::test_dry_run_of_undo_changes_nothing",),
    ),
    Line(
        "envlog undo --plan",
        "undoes only if the plan is the printed one",
        ("mcp/test_server.py::test_agent_captures_reads_plans_restores_and_undoes",),
    ),
    Line(
        "envlog undo --services",
        "with the state of the services",
        ("services/test_services.py::test_undo_and_redo_restore_services_and_show_lists_them",),
    ),
    Line(
        "envlog undo --force",
        "overrides refusals",
        ("restore/test_programs.py::test_dry_run_of_undo_changes_nothing",),
    ),
    Line(
        "envlog --session",
        "lists the snapshots of one session of an agent",
        ("history/test_choice.py::test_list_is_selected_by_session_and_subagent",),
    ),
    Line(
        "envlog --agent-id",
        "lists the snapshots of one subagent",
        ("history/test_choice.py::test_list_is_selected_by_session_and_subagent",),
    ),
    Line(
        "envlog install --worktrees",
        "adds the hooks that make an agent's worktrees as forks",
        ("integrations/agents/test_worktrees.py::test_installed_hooks_make_and_remove_worktrees",),
    ),
    Line(
        "envlog why",
        "names the step that changed a path or line, and the call of a tool only with evidence",
        (
            "cli/test_why.py::test_path_is_followed_across_a_rename_also_if_it_is_ignored",
            "cli/test_why.py::test_line_names_the_step_that_brought_it",
            "integrations/agents/test_why_calls.py::test_no_wrong_call_is_named_after_many_calls",
        ),
    ),
    Line(
        "envlog why --package",
        "asks about a package",
        ("integrations/agents/test_why_calls.py::test_no_wrong_call_is_named_after_many_calls",),
    ),
    Line(
        "envlog why --var",
        "asks about a variable; no value is shown",
        ("cli/test_why.py::test_no_value_of_a_variable_is_shown",),
    ),
    Line(
        "envlog why --table",
        "asks about a table",
        ("cli/test_why.py::test_facts_and_rows_name_the_step_that_changed_them",),
    ),
    Line(
        "envlog why --row",
        "asks about a row",
        ("cli/test_why.py::test_facts_and_rows_name_the_step_that_changed_them",),
    ),
    Line(
        "envlog why --service",
        "asks about a service",
        ("cli/test_why.py::test_service_names_the_step_that_changed_it",),
    ),
    Line(
        "envlog why --path-gone",
        "asks about a path that is gone",
        ("cli/test_why.py::test_facts_and_rows_name_the_step_that_changed_them",),
    ),
    Line(
        "envlog why --at",
        "explains an older state",
        ("cli/test_why.py::test_path_is_followed_across_a_rename_also_if_it_is_ignored",),
    ),
    Line(
        "envlog why --max-count",
        "limits the steps",
        ("cli/test_why.py::test_path_is_followed_across_a_rename_also_if_it_is_ignored",),
    ),
    Line("envlog why --all", "prints all steps", ("cli/test_why.py::test_no_value_of_a_variable_is_shown",)),
    Line("envlog why --date", "git's styles", ("cli/test_why.py::test_date_style_is_that_of_git",)),
    Line(
        "envlog blame",
        "prints each line with its snapshot and intent",
        ("cli/test_why.py::test_blame_prints_snapshot_and_intent_of_each_line",),
    ),
    Line(
        "envlog blame -L",
        "limits the lines",
        ("cli/test_why.py::test_blame_prints_snapshot_and_intent_of_each_line",),
    ),
    Line(
        "envlog blame --porcelain",
        "has the form of git blame",
        ("cli/test_why.py::test_porcelain_blame_has_the_lines_of_git_blame",),
    ),
    Line(
        "envlog blame --reveal",
        "prints the lines of a sealed file",
        ("cli/test_why.py::test_sealed_and_binary_and_huge_lines_are_blamed_safely",),
    ),
    Line("envlog blame --date", "git's styles", ("cli/test_why.py::test_date_style_is_that_of_git",)),
    Line(
        "envlog why --failed",
        "shows the step that broke a check, the likeliest changes first",
        (
            "history/test_failure.py::test_changes_named_in_the_output_come_first",
            "cli/test_why.py::test_failed_check_names_its_step_and_the_likeliest_changes",
        ),
    ),
    Line(
        "python why",
        "returns the steps that changed a subject",
        ("library/test_examples.py::test_examples_of_the_verbs_run",),
    ),
    Line(
        "python blame",
        "returns the lines of a file with the steps that brought them",
        ("cli/test_why.py::test_python_answers_are_those_of_the_commands",),
    ),
    Line(
        "python why_failed",
        "returns the step that broke a check",
        ("cli/test_why.py::test_python_answers_are_those_of_the_commands",),
    ),
    Line(
        "python origins",
        "reads the steps of a timeline",
        ("cli/test_why.py::test_path_is_followed_across_a_rename_also_if_it_is_ignored",),
    ),
    Line(
        "envlog revert",
        "takes out what a step changed and keeps what came later; an overlap is a conflict",
        (
            "restore/test_revert.py::test_revert_takes_out_one_step_and_keeps_later_changes",
            "restore/test_revert.py::test_range_is_reverted_as_one_step",
            "restore/test_revert.py::test_conflict_changes_nothing_and_each_one_is_printed",
            "restore/test_revert.py::test_versions_of_a_package_are_not_mixed",
            "restore/test_revert.py::test_reverted_step_of_a_random_history_equals_a_history_without_it",
            "restore/test_revert.py::test_interrupted_revert_is_continued_or_aborted",
        ),
    ),
    Line(
        "envlog revert --dry-run",
        "prints the plan and the conflicts",
        ("restore/test_revert.py::test_dry_run_of_a_revert_changes_nothing_and_lists_conflicts",),
    ),
    Line(
        "envlog revert --ours",
        "keeps the present versions of conflicts",
        ("restore/test_revert.py::test_conflicts_take_the_chosen_side_and_the_rest_is_reverted",),
    ),
    Line(
        "envlog revert --theirs",
        "takes the versions before the step",
        ("restore/test_revert.py::test_conflicts_take_the_chosen_side_and_the_rest_is_reverted",),
    ),
    Line(
        "envlog revert --conflict",
        "writes both sides of text into the file",
        ("restore/test_revert.py::test_markers_show_both_sides_of_text_and_other_conflicts_remain",),
    ),
    Line(
        "envlog revert --only",
        "reverts one class of paths",
        ("restore/test_revert.py::test_pathspecs_and_classes_choose_what_is_reverted",),
    ),
    Line(
        "envlog revert --force",
        "overrides refusals",
        ("restore/test_revert.py::test_forced_revert_changes_an_open_database",),
    ),
    Line(
        "envlog merge",
        "joins what changed in another timeline since the newest common snapshot",
        (
            "restore/test_merge.py::test_merge_joins_disjoint_changes_of_a_fork_and_undo_takes_them_back",
            "restore/test_merge.py::test_merging_in_either_direction_gives_the_same_tree",
            "restore/test_merge.py::test_second_merge_begins_at_the_first_unless_that_was_undone",
            "restore/test_merge.py::test_every_overlap_of_a_merge_is_listed_and_nothing_changes",
            "restore/test_merge.py::test_interrupted_merge_is_continued_or_aborted",
        ),
    ),
    Line(
        "envlog merge --base",
        "names the snapshot from which on both sides are compared",
        ("restore/test_merge.py::test_base_makes_a_merge_of_one_step",),
    ),
    Line(
        "envlog merge --relocate",
        "replaces the path of the other working tree",
        ("restore/test_merge.py::test_relocation_of_a_fork_is_no_work_to_merge",),
    ),
    Line(
        "envlog merge --dry-run",
        "prints the plan and the conflicts",
        ("restore/test_merge.py::test_dry_run_of_a_merge_names_both_sides_and_changes_nothing",),
    ),
    Line(
        "envlog merge --plan",
        "refuses a plan that has changed",
        ("restore/test_merge.py::test_dry_run_of_a_merge_names_both_sides_and_changes_nothing",),
    ),
    Line(
        "envlog merge --force",
        "overrides refusals",
        ("restore/test_merge.py::test_forced_merge_changes_an_open_database",),
    ),
    Line(
        "envlog merge --ours",
        "keeps the present versions of conflicts",
        ("restore/test_merge.py::test_one_side_decides_all_conflicts_of_a_merge",),
    ),
    Line(
        "envlog merge --theirs",
        "takes the versions of the other timeline",
        ("restore/test_merge.py::test_one_side_decides_all_conflicts_of_a_merge",),
    ),
    Line(
        "envlog merge --conflict",
        "writes both sides of text into the file",
        ("restore/test_merge.py::test_markers_name_the_timeline",),
    ),
    Line(
        "envlog merge --both",
        "writes the other version beside the present one",
        ("restore/test_merge.py::test_both_versions_are_kept_side_by_side",),
    ),
    Line(
        "envlog merge --skip-conflicts",
        "leaves paths in conflict as they are",
        ("restore/test_merge.py::test_skipped_conflicts_leave_their_paths_and_the_rest_is_merged",),
    ),
    Line(
        "envlog merge --resolve",
        "decides conflicts by path or class",
        ("restore/test_merge.py::test_conflicts_are_decided_by_path_and_class_and_the_last_rule_counts",),
    ),
    Line(
        "envlog merge --only",
        "merges one class of paths",
        ("restore/test_merge.py::test_pathspecs_and_classes_choose_what_is_merged",),
    ),
    Line(
        "envlog merge --allow-unsigned",
        "merges an unsigned snapshot, reduced as a restore of it",
        ("restore/test_merge.py::test_fetched_timeline_without_your_signature_needs_the_option",),
    ),
    Line(
        "envlog merge --verify",
        "runs the recorded check afterwards",
        ("restore/test_merge.py::test_check_that_passed_on_both_sides_and_fails_is_reported",),
    ),
    Line(
        "envlog merge --verify-with",
        "runs a check afterwards",
        ("restore/test_merge.py::test_check_that_passed_on_both_sides_and_fails_is_reported",),
    ),
    Line(
        "envlog revert --turn",
        "takes out the whole turn of an agent",
        ("restore/test_merge.py::test_turn_of_an_agent_is_reverted_whole_and_nothing_else",),
    ),
    Line(
        "envlog revert --session",
        "takes out all steps of a session",
        ("restore/test_merge.py::test_session_is_reverted_although_others_worked_in_between",),
    ),
    Line(
        "envlog revert --plan",
        "refuses a plan that has changed",
        ("restore/test_merge.py::test_revert_has_the_options_of_a_merge",),
    ),
    Line(
        "envlog revert --both",
        "writes the other version beside the present one",
        ("restore/test_merge.py::test_revert_has_the_options_of_a_merge",),
    ),
    Line(
        "envlog revert --skip-conflicts",
        "leaves paths in conflict as they are",
        ("restore/test_merge.py::test_conflicts_of_a_session_name_the_command_that_lists_them",),
    ),
    Line(
        "envlog revert --resolve",
        "decides conflicts by path or class",
        ("restore/test_merge.py::test_revert_has_the_options_of_a_merge",),
    ),
    Line(
        "envlog revert --allow-unsigned",
        "reverts an unsigned step",
        ("restore/test_merge.py::test_unsigned_step_is_reverted_with_the_option",),
    ),
    Line(
        "envlog revert --verify",
        "runs the recorded check afterwards",
        ("restore/test_merge.py::test_revert_has_the_options_of_a_merge",),
    ),
    Line(
        "envlog revert --verify-with",
        "runs a check afterwards",
        ("restore/test_merge.py::test_revert_has_the_options_of_a_merge",),
    ),
    Line(
        "python merge",
        "returns the result, or raises with the conflicts",
        ("restore/test_merge.py::test_conflicts_are_decided_by_path_and_class_and_the_last_rule_counts",),
    ),
    Line(
        "envlog redo",
        "redoes an undo until the state changes otherwise",
        (
            "restore/test_programs.py::test_undo_steps_through_snapshots_and_redo_returns_to_the_uncaptured_state",
            "restore/test_programs.py::test_redo_after_new_work_is_refused_with_a_reason",
        ),
    ),
    Line(
        "envlog redo --dry-run",
        "prints only the plan",
        ("restore/test_programs.py::test_dry_run_of_undo_changes_nothing",),
    ),
    Line(
        "envlog redo --plan",
        "redoes only if the plan is the printed one",
        ("restore/test_programs.py::test_redo_is_refused_when_its_plan_is_stale",),
    ),
    Line(
        "envlog redo --services",
        "with the state of the services",
        ("services/test_services.py::test_undo_and_redo_restore_services_and_show_lists_them",),
    ),
    Line(
        "envlog redo --force",
        "overrides refusals",
        ("restore/test_programs.py::test_dry_run_of_undo_changes_nothing",),
    ),
    Line(
        "status 5",
        "done, but something differs from the snapshot",
        ("restore/test_programs.py::test_partial_restore_has_its_own_exit_status",),
    ),
)

SETTINGS = (
    Line(
        "config envhist.enabled",
        "false disables the captures of all hooks",
        ("integrations/test_hooks.py::test_disabled_hook_captures_nothing_and_logs_it",),
    ),
    Line(
        "config envhist.mergelimit",
        "the largest database that a revert or a merge merges by rows",
        ("restore/test_revert_units.py::test_larger_database_than_the_limit_is_one_conflict",),
    ),
    Line(
        "config envhist.maxsize",
        "the size limit of the history, applied by the daily run",
        ("test_config.py::test_each_key_is_read_and_the_last_value_wins",),
    ),
    Line(
        "config envhist.crossmounts",
        "whether mounts below the tree are captured",
        (
            "test_config.py::test_each_key_is_read_and_the_last_value_wins",
            "elsewhere/test_mounts.py::test_mount_is_listed_as_missing_or_captured_as_configured",
        ),
    ),
    Line(
        "config envhist.workers",
        "the number of a capture's worker processes",
        ("test_config.py::test_each_key_is_read_and_the_last_value_wins",),
    ),
    Line(
        "invalid configuration",
        "a warning, and the default applies",
        ("test_config.py::test_invalid_value_gives_a_warning_and_the_default",),
    ),
)

PYTHON = (
    Line(
        "python restore",
        "the same as the program, with a result",
        ("restore/test_api.py::test_restore_undo_and_redo_return_results",),
    ),
    Line(
        "python undo",
        "restores the state before",
        ("restore/test_api.py::test_restore_undo_and_redo_return_results",),
    ),
    Line(
        "python revert",
        "takes out one step, or raises with the conflicts",
        ("restore/test_revert.py::test_api_returns_the_result_and_refuses_unknown_words",),
    ),
    Line(
        "python redo",
        "redoes the last undo",
        ("restore/test_api.py::test_restore_undo_and_redo_return_results",),
    ),
    Line(
        "python refresh",
        "reads timelines and clock again",
        ("restore/test_api.py::test_restore_undo_and_redo_return_results",),
    ),
    Line(
        "python open",
        "opens the history of a working tree",
        ("end_to_end/test_python.py::test_a_history_is_captured_read_compared_named_and_noted",),
    ),
    Line(
        "python init",
        "makes the history of a plain directory in a chosen storage",
        ("cli/test_init.py::test_api_creates_a_history_in_a_given_place",),
    ),
    Line(
        "python capture",
        "takes a snapshot",
        ("end_to_end/test_python.py::test_a_history_is_captured_read_compared_named_and_noted",),
    ),
    Line(
        "python log",
        "snapshots, newest first",
        ("end_to_end/test_python.py::test_a_history_is_captured_read_compared_named_and_noted",),
    ),
    Line(
        "python diff",
        "compares two snapshots",
        ("end_to_end/test_python.py::test_a_history_is_captured_read_compared_named_and_noted",),
    ),
    Line(
        "python name",
        "names a snapshot",
        ("end_to_end/test_python.py::test_a_history_is_captured_read_compared_named_and_noted",),
    ),
    Line(
        "python note",
        "adds a remark to a snapshot",
        ("end_to_end/test_python.py::test_a_history_is_captured_read_compared_named_and_noted",),
    ),
    Line(
        "python remove_name",
        "removes a name",
        ("end_to_end/test_python.py::test_name_is_removed",),
    ),
    Line(
        "python with_contents",
        "returns a snapshot with readable trees; fetches contents",
        ("remote/test_fetch.py::test_fetch_is_lazy_and_gets_contents_on_demand",),
    ),
    Line(
        "python resolve",
        "returns the snapshot of a revision",
        ("end_to_end/test_python.py::test_revisions_are_resolved_and_errors_are_public_classes",),
    ),
    Line(
        "python timelines",
        "returns the names of all timelines",
        ("end_to_end/test_python.py::test_revisions_are_resolved_and_errors_are_public_classes",),
    ),
    Line(
        "python newest",
        "returns the newest snapshots of all timelines",
        ("remote/test_fetch.py::test_log_of_all_timelines_with_a_limit_is_its_beginning",),
    ),
    Line(
        "python read_file",
        "returns the stored bytes of a file",
        ("end_to_end/test_python.py::test_revisions_are_resolved_and_errors_are_public_classes",),
    ),
    Line(
        "python environment_path",
        "returns a path that the user typed, relative to the top",
        ("end_to_end/test_reading.py::test_show_prints_details_and_with_a_path_the_stored_bytes",),
    ),
    Line(
        "python open_sealed",
        "opens sealed content with the key",
        (
            "cli/test_diffview.py::test_reveal_shows_values_with_the_key",
            "end_to_end/test_capture_options.py::test_secret_files_are_sealed_before_they_are_stored",
        ),
    ),
    Line(
        "python present",
        "returns the working tree, captured and discarded",
        ("cli/test_envdiff.py::test_diff_with_now_stores_nothing",),
    ),
    Line(
        "python sides",
        "returns two trees to compare, one of which may be now",
        ("cli/test_envdiff.py::test_patch_with_now_shows_new_contents",),
    ),
    Line(
        "python reader",
        "returns an open reader of objects",
        ("cli/test_envdiff.py::test_patch_with_now_shows_new_contents",),
    ),
    Line(
        "python judge",
        "returns whether one of the user's keys signed a snapshot",
        (
            "secrets/test_unsigned_snapshots.py::test_own_snapshots_are_trusted",
            "secrets/test_unsigned_snapshots.py::test_forged_message_with_a_copied_mac_is_unsigned",
        ),
    ),
    Line(
        "python snapshot_of",
        "returns the snapshot of a revision, a snapshot or a capture's result",
        ("library/test_handlers.py::test_every_verb_resolves_revisions_on_current_timelines",),
    ),
    Line(
        "python snapshots_of",
        "returns the snapshots of revisions and ranges",
        ("library/test_handlers.py::test_every_verb_resolves_revisions_on_current_timelines",),
    ),
    Line(
        "python tree_of",
        "returns the tree of a snapshot",
        ("cli/test_envdiff.py::test_patch_with_now_shows_new_contents",),
    ),
    Line(
        "python fetch_missing",
        "fetches the contents of a fetched snapshot",
        ("remote/test_fetch.py::test_fetch_is_lazy_and_gets_contents_on_demand",),
    ),
    Line(
        "python fetch_blobs",
        "fetches attachments of a fetched snapshot",
        ("remote/test_fetch.py::test_fetch_is_lazy_and_gets_contents_on_demand",),
    ),
    Line(
        "python pushed_tip",
        "the commit that a push left at a remote",
        ("remote/test_fetch.py::test_fetch_is_lazy_and_gets_contents_on_demand",),
    ),
    Line(
        "python warn",
        "adds a warning once",
        ("library/test_rounds.py::test_handler_that_fails_receives_every_event_and_breaks_nothing",),
    ),
    Line(
        "import git_envhist",
        "is fast and starts no process",
        (
            "end_to_end/test_python.py::test_importing_the_package_is_cheap_and_starts_no_process",
            "end_to_end/test_python.py::test_log_loads_no_unneeded_modules",
        ),
    ),
    Line(
        "python names",
        "every type of the model and every error is public",
        ("end_to_end/test_python.py::test_every_type_and_error_is_a_public_name",),
    ),
)

CAPTURE_VERIFY = "checks/test_capture_verify.py::"
CHECKS = (
    Line(
        "envlog capture --verify",
        "publishes the snapshot, then checks it by the shell in the root; a failing check or bad notes cause a warning",
        (
            CAPTURE_VERIFY + "test_failed_check_prints_a_warning_and_keeps_the_snapshot",
            CAPTURE_VERIFY + "test_snapshot_exists_while_its_check_runs",
            CAPTURE_VERIFY + "test_check_runs_at_the_top_without_variables_of_git",
            CAPTURE_VERIFY + "test_unwritable_notes_print_a_warning",
            CAPTURE_VERIFY + "test_ctrl_c_keeps_the_snapshot_and_ends_the_check",
            CAPTURE_VERIFY + "test_real_npm_test_is_run",
        ),
    ),
    Line(
        "envlog capture --exit-code",
        "ends with the check's status",
        (
            CAPTURE_VERIFY + "test_exit_code_option_returns_the_status_of_the_check",
            CAPTURE_VERIFY + "test_exit_code_option_needs_a_check",
        ),
    ),
    Line(
        "config envhist.verify",
        "the default check of captures",
        (
            CAPTURE_VERIFY + "test_configured_check_runs_for_the_named_triggers",
            CAPTURE_VERIFY + "test_check_inside_a_check_is_skipped_without_waiting",
        ),
    ),
    Line(
        "config envhist.transcriptlimit",
        "the most bytes of a stored transcript",
        ("tracking/test_large_attachments.py::test_transcript_over_the_limit_keeps_its_last_whole_lines",),
    ),
    Line(
        "config envhist.agentevery",
        "captures before every n-th tool that may change something",
        (AGENTS + "test_agent_every_captures_before_every_nth_tool_that_may_change_something",),
    ),
    Line(
        "config envhist.agenttimeout",
        "the time that a tool waits at most; a note says if that was too short",
        (AGENTS + "test_tool_waits_up_to_agent_timeout_and_a_late_snapshot_has_a_remark",),
    ),
    Line(
        "config envhist.agentidle",
        "how long a process waits for the next tool",
        ("integrations/agents/test_waiting.py::test_second_tool_is_answered_by_the_process_that_waits",),
    ),
    Line(
        "config envhist.watcher",
        "captures start the watcher and ask it",
        ("watcher/test_install.py::test_capture_starts_the_watcher_again",),
    ),
    Line(
        "config envhist.watcheridle",
        "how long the watcher waits for the next question",
        ("watcher/test_install.py::test_watcher_ends_after_the_configured_time_without_a_question",),
    ),
    Line(
        "config envhist.verifyon",
        "the triggers after which the check runs, one at a time",
        (
            CAPTURE_VERIFY + "test_configured_check_runs_for_the_named_triggers",
            CAPTURE_VERIFY + "test_checks_of_one_working_tree_run_one_after_the_other",
        ),
    ),
    Line(
        "config envhist.verifytimeout",
        "the timeout of a check",
        (CAPTURE_VERIFY + "test_check_is_ended_at_its_timeout",),
    ),
    Line(
        "envlog verify",
        "checks now, or an older snapshot in a temporary environment without the current packages; status 0, 1 or 125",
        (
            "checks/test_sandbox.py::test_exit_status_is_that_of_the_check",
            "checks/test_sandbox.py::test_changed_environment_is_captured_and_checked",
            "checks/test_sandbox.py::test_older_snapshot_is_checked_without_touching_the_environment",
            "checks/test_sandbox.py::test_sandbox_is_seen_at_the_original_path",
            "checks/test_sandbox.py::test_ordinary_user_has_a_sandbox",
            "checks/test_sandbox.py::test_paths_are_rewritten_when_mounts_are_not_available",
            "checks/test_sandbox.py::test_remaining_reference_to_the_environment_is_an_error_and_never_a_pass",
            "checks/test_sandbox.py::test_virtual_environment_runs_its_files_of_that_time",
            "checks/test_sandbox.py::test_killed_check_leaves_nothing_after_the_next",
        ),
    ),
    Line(
        "envlog bisect",
        "finds the first snapshot for which the check fails, with the fewest checks, and its changes; 125 skips",
        (
            "checks/test_bisect.py::test_package_is_found_among_sixty_snapshots_in_seven_tries",
            "checks/test_bisect.py::test_database_row_is_found_with_the_check_that_good_passed",
            "checks/test_bisect.py::test_exit_status_125_skips_and_all_candidates_are_printed",
        ),
    ),
    Line(
        "envlog bisect --good",
        "a snapshot that passes; by default the newest one",
        ("checks/test_bisect.py::test_bisect_without_a_result_prints_the_reason",),
    ),
    Line(
        "envlog bisect --bad",
        "a later snapshot that fails; by default the newest",
        ("checks/test_bisect.py::test_bisect_without_a_result_prints_the_reason",),
    ),
    Line(
        "envrestore --verify",
        "runs the recorded check afterwards and offers to undo if it fails",
        (
            "checks/test_restore_verify.py::test_recorded_check_runs_on_the_restored_environment",
            "checks/test_restore_verify.py::test_failed_check_prints_the_undo_command",
            "checks/test_restore_verify.py::test_failed_check_asks_on_a_terminal",
            "checks/test_restore_verify.py::test_nothing_is_restored_without_a_check",
        ),
    ),
    Line(
        "verdicts of others",
        "an unsigned verdict does not count; an equal tree gets the known verdict; commands are never taken from notes",
        (
            "checks/test_unsigned_verdicts.py::test_verdict_without_our_signature_is_ignored",
            "checks/test_unsigned_verdicts.py::test_verdict_applies_only_to_its_snapshot",
            "checks/test_unsigned_verdicts.py::test_command_in_a_note_is_never_run",
            "checks/test_unsigned_verdicts.py::test_equal_environment_is_known_with_the_time_of_its_check",
        ),
    ),
    Line(
        "python verify",
        "checks now, or a snapshot",
        ("checks/test_api.py::test_api_checks_now_an_older_snapshot_and_bisects",),
    ),
    Line(
        "python bisect",
        "finds the first snapshot for which a check fails",
        ("checks/test_api.py::test_api_checks_now_an_older_snapshot_and_bisects",),
    ),
    Line(
        "result of a check",
        "pass, fail or error by the exit status only; changes are listed; output is sealed",
        (
            "checks/test_check_command.py::test_verdict_depends_on_the_exit_status_alone",
            CAPTURE_VERIFY + "test_check_that_changed_the_environment_is_reported",
            CAPTURE_VERIFY + "test_stored_output_is_sealed_and_tokens_are_masked",
            CAPTURE_VERIFY + "test_log_prints_failures_as_documented",
        ),
    ),
)

HOOKS = (
    Line(
        "hooks of git",
        "commit, amend, merge, rebase, cherry-pick, stash, checkout, worktree: captured once, with the subject",
        (
            "integrations/test_hooks.py::test_commit_is_captured_with_its_subject_and_ignored_files",
            "integrations/test_hooks.py::test_amended_commit_makes_one_snapshot",
            "integrations/test_hooks.py::test_checkout_and_merge_are_captured",
            "integrations/test_hooks.py::test_rebase_of_a_hundred_commits_makes_one_capture",
            "integrations/test_hooks.py::test_cherry_picks_are_captured_with_the_last_subject",
            "integrations/test_hooks.py::test_stash_calls_no_hook",
            "integrations/test_hooks.py::test_linked_worktree_captures_its_own_environment",
            "integrations/test_hooks.py::test_newer_git_gets_hooks_in_its_configuration",
        ),
    ),
    Line(
        "hooks do not block",
        "a hook blocks no caller, no index and no lock, and never makes git fail",
        (
            "integrations/test_hooks.py::test_hook_does_not_block_a_reader_of_git_output",
            "integrations/test_hooks.py::test_hook_never_changes_the_index",
            "integrations/test_hooks.py::test_next_capture_does_not_wait_for_a_check",
            "integrations/test_hooks.py::test_git_variables_of_hooks_are_ignored",
        ),
    ),
    Line(
        "hooks with other tools",
        "husky, pre-commit, lefthook: both run, and removed hooks are reported",
        (
            "integrations/test_frameworks.py::test_pre_commit",
            "integrations/test_frameworks.py::test_husky",
            "integrations/test_frameworks.py::test_lefthook",
        ),
    ),
    Line(
        "envlog install",
        "git captures automatically; existing hooks keep running; installing once is enough",
        (
            "integrations/test_install.py::test_install_is_idempotent",
            "integrations/test_install.py::test_earlier_hooks_keep_their_input_arguments_and_status",
            "integrations/test_install.py::test_hooks_are_installed_in_core_hookspath",
            "integrations/test_install.py::test_hooks_of_a_removed_program_do_nothing",
        ),
    ),
    Line(
        "envlog install --agent",
        "installs hooks of the named agent, which captures before a tool writes and after the turn",
        (
            AGENTS + "test_agent_hooks_capture_before_a_tool_and_after_the_turn",
            AGENTS + "test_two_hooks_for_one_event_make_one_capture",
            AGENTS + "test_hook_is_silent_and_succeeds_for_any_input",
            "integrations/agents/test_install.py::test_install_is_idempotent_and_uninstall_leaves_nothing",
            "integrations/agents/test_install.py::test_uninstall_restores_settings_byte_for_byte",
            "integrations/test_install.py::test_unknown_agent_is_a_usage_error",
        ),
    ),
    Line(
        "envlog install --global",
        "for every repository of this user",
        ("integrations/test_install.py::test_older_git_gets_global_hooks_in_new_repositories",),
    ),
    Line(
        "envlog install --force",
        "also into hooks directories that others share",
        ("integrations/test_install.py::test_tracked_or_shared_hooks_are_changed_only_with_force",),
    ),
    Line(
        "envlog install --dry-run",
        "prints every byte, and writes nothing",
        ("integrations/test_install.py::test_dry_run_prints_every_byte_and_writes_none",),
    ),
    Line(
        "envlog uninstall",
        "restores every byte, or the absence of a file",
        (
            "integrations/test_install.py::test_uninstall_restores_every_byte_and_removes_new_files",
            "integrations/test_install.py::test_uninstall_restores_modes_and_links",
            "integrations/test_install.py::test_uninstall_removes_only_our_lines_from_edited_hooks",
        ),
    ),
    Line(
        "envlog uninstall --agent",
        "only the hooks of that agent",
        ("integrations/test_install.py::test_unknown_agent_is_a_usage_error",),
    ),
    Line(
        "envlog uninstall --global",
        "the hooks that were installed for every repository",
        ("integrations/test_install.py::test_older_git_gets_global_hooks_in_new_repositories",),
    ),
    Line(
        "envlog uninstall --force",
        "works also if the repository of another user's git process is hidden",
        ("git/test_process_access.py::test_error_names_process_user_and_directory",),
    ),
    Line(
        "envlog uninstall --history",
        "deletes refs, notes, packs and keys, and nothing else",
        (
            "integrations/test_forgetting.py::test_uninstall_history_removes_all_our_data_and_keeps_the_code",
            "integrations/test_forgetting.py::test_keys_of_sent_data_are_kept",
        ),
    ),
    Line(
        "envlog uninstall --yes",
        "without it, the deletion is refused",
        ("integrations/test_forgetting.py::test_uninstall_history_needs_consent_and_dry_run_lists_it",),
    ),
    Line(
        "envlog uninstall --dry-run",
        "prints what would be deleted",
        ("integrations/test_forgetting.py::test_uninstall_history_needs_consent_and_dry_run_lists_it",),
    ),
    Line(
        "envlog status",
        "prints what is active, its last run, and errors",
        (
            "integrations/test_status.py::test_status_lists_active_hooks_and_last_runs",
            "integrations/test_status.py::test_status_warns_about_replaced_hooks",
            "integrations/test_status.py::test_status_warns_about_a_hook_that_was_never_called",
        ),
    ),
    Line(
        "envlog status --report",
        "prints versions, settings and runs, without secrets",
        ("integrations/test_status.py::test_a_report_has_versions_and_settings_and_no_secret",),
    ),
)

LINES: tuple[Line, ...] = (
    *WORDS,
    *REVISIONS,
    *CAPTURE,
    *CHECKS,
    *LIST,
    *DIFF,
    *RESTORE,
    *EVERY,
    *CONFIG,
    *SETTINGS,
    *STATUS,
    *PYTHON,
    *HOOKS,
)
