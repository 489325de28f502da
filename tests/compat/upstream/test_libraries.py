"""The libraries' own agents, loops and commands, run with our classes and, as a control, with the original ones."""

from __future__ import annotations

import pytest

from tests.compat.upstream.conftest import RunProgram

pytestmark = pytest.mark.full


def test_both_services_return_equal_results(run_program: RunProgram) -> None:
    ours, theirs = run_program("calls", "ours"), run_program("calls", "theirs")
    # The documented difference (docs/guide/compat.md), the complete list after a restore, does not show in these calls.
    assert ours.keys() == theirs.keys()
    assert {key: ours[key] for key in theirs if ours[key] != theirs[key]} == {}


def test_known_faults_of_the_original_service_do_not_occur(run_program: RunProgram) -> None:
    ours, theirs = run_program("wrongs", "ours"), run_program("wrongs", "theirs")
    assert not [what for what, right in ours.items() if not right]
    assert not [what for what, right in theirs.items() if right]


def test_original_agent_and_pipeline_run_with_our_service(run_program: RunProgram) -> None:
    ours, theirs = run_program("agent", "ours"), run_program("agent", "theirs")
    assert ours["result"] == theirs["result"] == [True, "edited it"]
    assert ours["saved"] == theirs["saved"] == "Before autonomous execution"
    assert ours["edited"] == {"app.py": "edited\n"}
    assert ours["both"] == {"app.py": "edited\n", "new.py": "new\n"}
    assert ours["back"] is theirs["back"] is True
    assert ours["was"] == theirs["was"] == {"app.py": "original\n"}
    # The original service restores only the files: the conversation still mentions the edits.
    assert (ours["left"], theirs["left"]) == (0, 4)
    assert ours["stores"] == [[1, 3], [1, 3]]


def test_original_agent_and_loop_run_with_our_managers_and_environment(run_program: RunProgram) -> None:
    ours, theirs = run_program("loops", "ours"), run_program("loops", "theirs")
    assert ours.pop("every second") == 2
    assert ours == theirs
    assert [name for name, _ in ours["checkpoints"]] == ["first", *(f"checkpoint-{n}" for n in (2, 3, 4))]
    assert ours["back"] == ["before the agent", {"app.py": "original\n"}]


def test_original_commands_run_with_our_manager_and_our_commands_print_the_same(
    run_program: RunProgram,
) -> None:
    told = [run_program("commands", whose) for whose in ("theirs", "ours", "our words")]
    assert told[0] == told[1] == told[2]
    assert told[0]["checkpoint"][0] == "No checkpoints."


def test_session_manager_and_commands_of_praisonai_code_print_the_same(
    run_program: RunProgram,
) -> None:
    ours, theirs = run_program("sessions", "ours"), run_program("sessions", "theirs")
    assert ours == theirs
    assert ours["session"][2] == ["one\n", ["app.py", "one.txt"], ["u1", "a1", "u one", "a one"], 1]
    assert ours["commands"][:4] == [True, True, False, ["second", "first"]]
    assert ours["commands"][4:] == [[True, "first\n"], [True, "second\n"], False, True]
