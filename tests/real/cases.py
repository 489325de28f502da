"""What a history has to show after a real agent worked: one function per case.

A case returns the differences from the expected history, an empty list if there are none, or a text that says why
this agent cannot be tried.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from git_envhist.api import EnvHistory
from git_envhist.errors import EnvhistError
from git_envhist.integrations.agents.install import CODEX, COPILOT, GEMINI
from git_envhist.integrations.status import IN_PROGRESS
from git_envhist.model import Snapshot
from tests.real.agents import AGENTS, CLAUDE_WORDS, LONG, SUBAGENT, Agent, start, working_tree
from tests.real.models import Call, Failure, Found, Script, Server, model
from tests.real.terminal import ENTER, ESCAPE, terminal
from tests.support.oracle import Listing, listing
from tests.support.programs import CHECKOUT
from tests.support.repository import Repo

FIRST, SECOND, THIRD = "make the greeting friendlier", "then write it shorter", "at last say goodbye"
CAPTURE = Call(".*envhist.*capture.*", {"intent": "taken by the agent itself"})
PACKAGE = "node_modules/react/package.json"
CHECK = f"test -e {PACKAGE} && grep -q ^API_URL= .env"
BREAK = "rm -r node_modules/react; grep -v ^API_URL .env >kept; mv kept .env"
VERDICT = re.compile(r"verify\W+status\W+(\w+)")
HOOKS = {form.name: form for form in (CODEX, GEMINI, COPILOT)}
FORKED = "forked from "
IGNORED = (".env", "node_modules/a/package.json", ".venv/pyvenv.cfg")
"""Files that a worktree of git does not have."""
OF_AGENTS = (b".git", b".claude", b".opencode")
"""Directories at the top in which agents and we write ourselves."""
SETTLED = 60.0
CALLS = 100
Result = list[str] | str


@dataclass
class Run:
    """One agent in one working tree, with a model that is scripted."""

    agent: Agent
    place: Path
    repo: Repo
    server: Server

    def ask(self, prompt: str, *, limit: float = LONG, **more: object) -> str:
        """Run the agent to its end, at most `limit` seconds; return its output."""
        process = start(self.agent, self.repo, self.server.address, prompt, **more)  # type: ignore[arg-type]
        try:
            output = process.communicate(timeout=limit)[0].decode("utf-8", "replace")
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output = process.communicate()[0].decode("utf-8", "replace") + "\nit did not end"
        return output

    def history(self, directory: Path | None = None) -> list[Seen]:
        history = EnvHistory.open(str(directory or self.repo.path), environ=self.repo.env, one_command=True)
        return [Seen.of(history, each) for each in reversed(history.log())]

    def settled(
        self, expected: Callable[[list[Seen]], list[str]], directory: Path | None = None
    ) -> list[str]:
        """Return what is wrong once the background processes are done: at once if nothing is."""
        until = time.monotonic() + SETTLED
        wrong = ["no history"]
        while time.monotonic() < until:
            with suppress(EnvhistError):
                seen = self.history(directory)
                wrong = expected(seen)
                if not wrong:
                    return []
                wrong = [*wrong, f"history: {[each.short for each in seen]}"]
            time.sleep(0.3)
        return wrong


@dataclass(frozen=True)
class Seen:
    """A snapshot, as the cases compare it."""

    moment: str
    intent: str
    content: str
    """What the file `f` contains."""
    snapshot: Snapshot

    @classmethod
    def of(cls, history: EnvHistory, snapshot: Snapshot) -> Seen:
        try:
            content = history.read_file(snapshot, "f").decode().strip()
        except EnvhistError:
            content = "-"
        moment = dict(snapshot.meta).get("agent-moment", "-")
        # OpenCode's `run` puts a prompt of several words into quotes.
        return cls(moment, (snapshot.intent or "").strip('"'), content, snapshot)

    @property
    def short(self) -> tuple[str, str, str, str | None]:
        return self.moment, self.intent, self.content, self.snapshot.actor.tool


def expect(rows: Sequence[tuple[str, str]], intent: str = FIRST) -> Callable[[list[Seen]], list[str]]:
    """Return a check: these (moment, content), all with one intent."""
    return expect_all([(moment, intent, content) for moment, content in rows])


def expect_all(rows: Sequence[tuple[str, str, str]]) -> Callable[[list[Seen]], list[str]]:
    """Return a check: these (moment, intent, content), oldest first."""

    def check(seen: list[Seen]) -> list[str]:
        found = [(each.moment, each.intent, each.content) for each in seen]
        # The intent of a fork goes on with an id.
        found = [(moment, FORKED if text.startswith(FORKED) else text, one) for moment, text, one in found]
        return [] if found == list(rows) else [f"expected {list(rows)}"]

    return check


def basic(run: Run) -> Result:
    """A tool, a snapshot by our server, another tool: old bytes before, new bytes after, and all details."""
    output = run.ask(FIRST)
    # The state after the first tool is captured before the next one, or by a hook that follows each tool.
    between = "after" if run.agent.after_tool else "before"
    first, second = ("before", FIRST, "0"), (between, FIRST, "1")
    own = ("-", "taken by the agent itself", "1")
    wrong = run.settled(expect_all([first, second, own, ("after", FIRST, "2")]))
    if wrong:
        return [*wrong, f"tools: {sorted(run.server.offered)}", output[-500:]]
    return [*_details(run), *_complaints(output)]


def _details(run: Run) -> list[str]:
    before, _, own, after = (each.snapshot for each in run.history())
    agent = run.agent
    checks = {
        f"agent: {before.actor}": before.actor.agent == agent.name and bool(before.actor.session),
        f"version: {after.actor}": after.actor.agent_version == agent.version or not agent.has_version,
        f"transcripts: {before.attachments}, {after.attachments}": _has_transcript(after)
        or agent.name == "opencode",
        f"transcript before the tool: {before.attachments}": _has_transcript(before)
        or not agent.has_transcript,
        f"prompt: {before.attachments}": any(name.endswith("-prompt.txt") for name in before.attachments),
        f"by the server: {own.actor}": bool(own.actor.agent),
    }
    return [text for text, right in checks.items() if not right]


def _has_transcript(snapshot: Snapshot) -> bool:
    return any(not name.endswith("-prompt.txt") for name in snapshot.attachments)


def _complaints(output: str) -> list[str]:
    """Return lines in which an agent complains about hooks."""
    lines = [line for line in output.splitlines() if "hook" in line.lower()]
    words = ("fail", "error", "clamp", "invalid")
    return [line for line in lines if any(word in line.lower() for word in words)]


def three_turns(run: Run) -> Result:
    """Three prompts in one session: each turn has its own intent, and no state is captured twice."""
    run.ask(FIRST)
    run.settled(lambda seen: [] if seen and seen[-1].content == "1" else ["first turn"])
    run.ask(SECOND, again=True)
    run.settled(lambda seen: [] if seen and seen[-1].content == "2" else ["second turn"])
    run.ask(THIRD, again=True)
    return run.settled(
        expect_all([
            ("before", FIRST, "0"),
            ("after", FIRST, "1"),
            ("after", SECOND, "2"),
            ("after", THIRD, "3"),
        ])
    )  # fmt: skip


def parallel(run: Run) -> Result:
    """Two tools in one answer: the state before both is kept, and the state after both."""
    run.ask(FIRST)

    def check(seen: list[Seen]) -> list[str]:
        if not seen or seen[0].content != "0" or seen[-1].content != "1":
            return ["expected 0 first and 1 last"]
        # The other file is written by the other tool.
        own = EnvHistory.open(str(run.repo.path), environ=run.repo.env, one_command=True)
        with suppress(EnvhistError):
            return [] if own.read_file(seen[-1].snapshot, "g") == b"1\n" else ["g"]
        return ["g is missing"]

    return run.settled(check)


def subagent(run: Run) -> Result:
    """A subagent in the background: the person's intent stays, and the subagent's snapshots have its id."""
    if isinstance(run.agent.subagent, str):
        return run.agent.subagent
    run.ask(FIRST)

    def check(seen: list[Seen]) -> list[str]:
        ids = [dict(each.snapshot.meta).get("agent-id") for each in seen]
        return [
            *([] if {each.intent for each in seen} == {FIRST} else ["another intent"]),
            *([] if any(ids) else ["no snapshot has the id of the subagent"]),
            *(
                []
                if seen and (seen[0].content, seen[-1].content) == ("0", "2")
                else ["expected 0 first and 2 last"]
            ),
        ]

    return run.settled(check)


def failing_tool(run: Run) -> Result:
    """A tool that fails after it changed something."""
    run.ask(FIRST)
    return run.settled(expect([("before", "0"), ("after", "1")]))


def escape(run: Run) -> Result:
    """A person presses Esc while a tool runs: its change is in the history under the turn's intent."""
    run.agent.prepare(run.repo, run.server.address)
    run.repo.env |= {name: value.format(run.server.address) for name, value in run.agent.environ.items()}
    words = [run.agent.program, *run.agent.on_terminal, FIRST]
    with terminal(words, run.repo.path, run.repo.env) as person:
        if not person.wait(lambda: run.repo.read("f") == b"1\n", 60):
            # OpenCode fills the prompt in, and a person sends it.
            person.press(ENTER)
            if not person.wait(lambda: run.repo.read("f") == b"1\n", LONG):
                return ["the tool did not run", repr(person.output[-500:])]
        for _ in range(2):
            person.press(ESCAPE)
            time.sleep(1)
        time.sleep(3)
    run.ask(SECOND, again=True)

    def check(seen: list[Seen]) -> list[str]:
        found = [(each.intent, each.content) for each in seen]
        return [] if found == [(FIRST, "0"), (FIRST, "1"), (SECOND, "2")] else ["expected 0 and 1, then 2"]

    return run.settled(check)


def own_worktree(run: Run) -> Result:
    """The agent's own option for a worktree, with our hooks: its work is captured there.

    Claude Code's worktree is a fork with ignored files; the other agents need the hooks of the user.
    """
    if not run.agent.worktree:
        return "it has no option for a worktree"
    _with_ignored_files(run)
    if run.agent.name == "claude-code":
        _install_worktree_hooks(run)
    else:
        _install_globally(run)
    output = run.ask(FIRST, words=tuple(word.format(FIRST) for word in run.agent.worktree), prepared=True)
    made = _worktrees(run)
    if len(made) != 1:
        return [f"worktrees: {made}", output[-1000:]]
    if run.agent.name == "claude-code":
        missing = [path for path in IGNORED if not (made[0] / path).exists()]
        # The fork begins with a snapshot of its own, equal to the state before the tool.
        wrong = run.settled(expect_all([("-", FORKED, "0"), ("after", FIRST, "1")]), made[0])
        return [*wrong, *(f"the worktree has no '{path}'" for path in missing)]
    wrong = run.settled(expect([("before", "0"), ("after", "1")]), made[0])
    return wrong or ([] if not run.history() else ["the main working tree was captured"])


def _with_ignored_files(run: Run) -> None:
    """Write files that a worktree of git does not have, and commit the others."""
    for path in IGNORED:
        run.repo.write(path, '{"name": "a", "version": "1.0.0"}\n' if path.endswith(".json") else "A=1\n")
    run.repo.write(".gitignore", "".join(f"/{path.partition('/')[0]}\n" for path in IGNORED))
    run.repo.git("add", "f", ".gitignore")
    run.repo.git("commit", "-q", "-m", "files")


def _install_worktree_hooks(run: Run) -> None:
    run.agent.prepare(run.repo, run.server.address)
    run.repo.run("envlog", "install", "--agent", run.agent.name, "--worktrees", check=True)


def _worktrees(run: Run) -> list[Path]:
    """Return the linked worktrees."""
    rows = run.repo.git("worktree", "list", "--porcelain").splitlines()
    found = [Path(row.removeprefix("worktree ")) for row in rows if row.startswith("worktree ")]
    return [path for path in found if path != run.repo.path]


def isolated_subagent(run: Run, *, forks: bool = False) -> Result:
    """A subagent in a worktree of its own: intent and id are in the history of that worktree."""
    if run.agent.name != "claude-code":
        return "it isolates no subagent"
    _with_ignored_files(run)
    if forks:
        _install_worktree_hooks(run)
    output = run.ask(FIRST)
    made = _worktrees(run)
    if len(made) != 1:
        return [f"worktrees: {made}", output[-1000:]]
    first = ("-", FORKED, "1") if forks else ("before", FIRST, "0")
    wrong = run.settled(expect_all([first, ("after", FIRST, "2")]), made[0])
    last = run.history(made[0])[-1].snapshot
    # The file of the main working tree is the one of the first tool.
    wrong += run.settled(lambda seen: [] if {each.content for each in seen} == {"0", "1"} else ["main"])
    return [*wrong, *([] if dict(last.meta).get("agent-id") else ["no id of the subagent"])]


def discarded_worktree(run: Run, *, forks: bool = False) -> Result:
    """The agent enters a worktree, works there, and discards it: the work is found by its name."""
    if run.agent.name != "claude-code":
        return "it has no tool that removes a worktree"
    _with_ignored_files(run)
    if forks:
        _install_worktree_hooks(run)
    output = run.ask(FIRST, words=("-p", FIRST, *CLAUDE_WORDS, "EnterWorktree", "ExitWorktree"))
    if made := _worktrees(run):
        return [f"not removed: {made}", output[-1000:]]
    name = f"removed-{f'{run.repo.path.name}-try' if forks else 'try'}"
    history = EnvHistory.open(str(run.repo.path), environ=run.repo.env, one_command=True)
    with suppress(EnvhistError):
        seen = Seen.of(history, history.snapshot_of(name))
        return [] if (seen.intent, seen.content) == (FIRST, "2") else [f"{name}: {seen.short}"]
    return [f"no snapshot is called '{name}'", output[-1000:]]


def provider_error(run: Run) -> Result:
    """The provider refuses after the first tool: the change is the agent's, a later edit is the person's."""
    run.ask(FIRST)
    time.sleep(2)
    if not run.agent.after_tool:
        run.settled(lambda seen: [] if seen and seen[-1].content == "1" else ["after the error"])
    run.repo.write("f", "mine\n")
    run.ask(SECOND)

    def check(seen: list[Seen]) -> list[str]:
        found = [(each.intent, each.content) for each in seen]
        return [
            *([] if (FIRST, "1") in found else ["the change of the first turn is missing"]),
            *([] if (FIRST, "mine") not in found else ["the person's edit counts as the agent's"]),
            *([] if (SECOND, "2") in found else ["the second turn is missing"]),
        ]

    return run.settled(check)


def killed(run: Run) -> Result:
    """The agent is killed while a tool runs: both states are in the history after the next prompt."""
    process = start(run.agent, run.repo, run.server.address, FIRST)
    until = time.monotonic() + LONG
    while run.repo.read("f") != b"1\n" and time.monotonic() < until and process.poll() is None:
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    run.ask(SECOND)

    def check(seen: list[Seen]) -> list[str]:
        found = [each.content for each in seen]
        return [] if found[:2] == ["0", "1"] and found[-1] == "2" else ["expected 0, 1 and 2"]

    return run.settled(check)


def pid_1(run: Run) -> Result:
    """The agent is the first process of a container: its end ends everything.

    A hook waits 2.5 seconds at the end of a session, so a busy machine can need the next prompt.
    """
    before = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if os.geteuid() or shutil.which("unshare") is None:
        return "needs root and unshare"
    run.ask(FIRST, before=before)
    # Nothing runs any more that could add a snapshot.
    if not expect([("before", "0"), ("after", "1")])(run.history()):
        return []
    run.ask(SECOND)

    def check(seen: list[Seen]) -> list[str]:
        found = [(each.intent, each.content) for each in seen]
        return [] if found == [(FIRST, "0"), (FIRST, "1"), (SECOND, "2")] else ["expected 0 and 1, then 2"]

    return run.settled(check)


def worktree(run: Run) -> Result:
    """A linked worktree in which the hooks were installed too."""
    linked = run.repo.path.parent / "linked"
    run.repo.git("worktree", "add", "-q", str(linked))
    (linked / "f").write_text("0\n")
    for name in (run.agent.name, *run.agent.beside):
        run.repo.run("envlog", "install", "--agent", name, cwd=linked, check=True)
    run.ask(FIRST, cwd=linked)
    wrong = run.settled(expect([("before", "0"), ("after", "1")]), linked)
    return wrong or ([] if not run.history() else ["the main working tree was captured"])


def nested(run: Run) -> Result:
    """The agent changes to a subdirectory: its next tool is captured too."""
    run.ask(FIRST)
    return run.settled(
        expect([("before", "0"), ("after" if run.agent.after_tool else "before", "1"), ("after", "2")])
    )


def both_levels(run: Run) -> Result:
    """Hooks in the project and for the user: one capture per event, one turn."""
    _install_globally(run)
    run.ask(FIRST, prepared=True)
    wrong = run.settled(expect([("before", "0"), ("after", "1")]))
    turns = {dict(each.snapshot.meta).get("agent-turn") for each in run.history()}
    return wrong or ([] if turns == {"1"} else [f"turns: {turns}"])


def _install_globally(run: Run) -> None:
    """Install for the user, after the configuration: both may be in one file."""
    run.agent.prepare(run.repo, run.server.address)
    run.repo.run("envlog", "install", "--global", "--agent", run.agent.name, check=True)


def no_git(run: Run) -> Result:
    """A directory without git, which a person captured once."""
    _install_globally(run)
    run.ask(FIRST, prepared=True)

    def check(seen: list[Seen]) -> list[str]:
        found = [each.short[:3] for each in seen]
        # The configuration of an agent that is in the directory is a change since the snapshot by hand.
        plain = [row for row in found if row != ("before", FIRST, "0")]
        return (
            [] if plain == [("-", "by hand", "0"), ("after", FIRST, "1")] else ["expected 0 by hand, then 1"]
        )

    return run.settled(check)


def plugin(run: Run) -> Result:
    """The plugin below hooks/plugins/ alone, in a repository that a person captured once."""
    if not run.agent.plugin:
        return "no plugin in a format of its own"
    run.repo.run("envlog", "uninstall", check=True)
    run.repo.run("envlog", "capture", "by hand", check=True)
    # A copy: an agent may load the plugin from where it is.
    source = shutil.copytree(CHECKOUT / "hooks/plugins", run.repo.path.parent / "plugins")
    run.agent.prepare(run.repo, run.server.address)
    for words in run.agent.plugin:
        command = [run.agent.program, *(word.format(source) for word in words)]
        done = subprocess.run(command, cwd=run.repo.path, env=run.repo.env, capture_output=True, check=False)
        if done.returncode:
            return [f"{command}: {(done.stdout + done.stderr).decode()}"]
    run.ask(FIRST, prepared=True)

    def check(seen: list[Seen]) -> list[str]:
        found = [each.short[:3] for each in seen if each.short[:3] != ("before", FIRST, "0")]
        return (
            [] if found == [("-", "by hand", "0"), ("after", FIRST, "1")] else ["expected 0 by hand, then 1"]
        )

    return run.settled(check)


def own_tool(name: str, **words: object) -> Call:
    """Return the call of a tool of our server; agents put the name of the server before it."""
    return Call(f".*environment_history_{name}", words)


def repair_script(agent: Agent) -> Script:
    """Break the environment by a command, then repair it with the tools of our server alone."""
    passing = Found(r"snapshots\W+id\W+([0-9a-f]{7,})")
    repair = [
        own_tool("verify"),
        own_tool("log", verdict="pass", limit=1),
        own_tool("diff", before=passing),
        own_tool("plan_restore", revision=passing, only=["packages", "env"]),
        own_tool("restore", plan_id=Found(r"plan_id\W+([0-9a-f]{7,})")),
        own_tool("verify"),
    ]
    return {FIRST: [agent.shell(BREAK), *repair]}


def repairs(run: Run) -> Result:
    """An agent removes a package and a variable, and repairs both with our tools; nobody is asked."""
    before, output = _broken_and_repaired(run, "--no-confirm")
    wrong = [] if (after := _tree(run.repo)) == before else [f"not repaired: {_differing(before, after)}"]
    verdicts = [match[1] for row in run.server.results for match in VERDICT.finditer(row)]
    if (verdicts[:1], verdicts[-1:]) != (["fail"], ["pass"]):
        wrong.append("the check did not fail first and pass last")
    return [*wrong, *map(str, run.server.results), output[-500:]] if wrong else []


def asked(run: Run) -> Result:
    """The same without `--no-confirm`: an agent that declares that it can ask, with nobody there, changes nothing."""
    before, output = _broken_and_repaired(run)
    is_repaired = _tree(run.repo) == before
    if is_repaired == run.agent.asks:
        return [f"repaired: {is_repaired}", *map(str, run.server.results), output[-500:]]
    return []


def _broken_and_repaired(run: Run, *options: str) -> tuple[Listing, str]:
    """Run the agent in an environment that works; return the tree before, and the agent's output."""
    repo = run.repo
    repo.write(".gitignore", "node_modules/\n.env\n")
    repo.write("app.js", "start\n")
    repo.write(PACKAGE, json.dumps({"name": "react", "version": "18.2.0"}))
    repo.write(".env", "API_URL=https://api.example\nPORT=3000\n")
    repo.run("envlog", "capture", "it works", "--verify", CHECK, check=True)
    # Work since then is not part of the repair.
    repo.write("app.js", "a feature\n")
    run.agent.prepare(repo, run.server.address, options)
    before = _tree(repo)
    return before, run.ask(FIRST, prepared=True)


def _tree(repo: Repo) -> Listing:
    """Return the tree as `find` and `sha256sum` see it, without times of directories."""
    return {
        path: replace(one, mtime_ns=0) if one.kind == "d" else one
        for path, one in listing(repo.path, without=OF_AGENTS).items()
    }


def _differing(before: Listing, after: Listing) -> list[bytes]:
    return sorted(path for path in before | after if before.get(path) != after.get(path))


def silent(run: Run) -> Result:
    """The agent works once with hooks, then without: `git envlog status` warns, and names the agent's version."""
    if not run.agent.silent:
        return "no option turns its hooks off"
    run.ask(FIRST)
    run.settled(lambda seen: [] if seen and seen[-1].content == "1" else ["first turn"])
    wrong = [f"too early: {line}" for line in _warnings(run)]
    run.ask(SECOND, words=tuple(word.replace("{}", SECOND) for word in run.agent.silent))
    expected = f"{run.agent.name} {run.agent.version} worked here"
    until = time.monotonic() + IN_PROGRESS + SETTLED
    warnings: list[str] = []
    while not any(expected in line for line in warnings) and time.monotonic() < until:
        time.sleep(1)
        warnings = _warnings(run)
    if run.repo.read("f") != b"2\n" or not any(expected in line for line in warnings):
        wrong.append(f"file: {run.repo.read('f')!r}, warnings: {warnings}")
    return wrong


def _warnings(run: Run) -> list[str]:
    done = run.repo.run("envlog", "status", check=True)
    return [line for line in done.err.splitlines() if "no hook" in line]


def approval(run: Run) -> Result:
    """A person approves hooks and directory on the terminal; `git envlog status` reads the answer before and after."""
    if not run.agent.approval:
        return "it asks for no approval of hooks"
    run.agent.prepare(run.repo, run.server.address)
    store = Path(run.repo.env["HOME"], run.agent.trust)
    # As a person has it who never started the agent here.
    store.write_text(store.read_text().partition("[projects.")[0] if store.suffix == ".toml" else "{}")
    run.repo.env |= {name: value.format(run.server.address) for name, value in run.agent.environ.items()}
    wrong = [f"before: {line}" for line in _hook_lines(run) if "✗" not in line or "not approved" not in line]
    with terminal([run.agent.program], run.repo.path, run.repo.env) as person:
        for question, keys in run.agent.approval:
            begin = len(person.output)
            person.wait(lambda text=question, at=begin: text in person.output[at:], 60)  # type: ignore[misc]
            time.sleep(2)
            person.press(keys)
        person.wait(lambda: all("✓" in line for line in _hook_lines(run)), 60)
        output = person.output
    wrong += [f"after: {line}" for line in _hook_lines(run) if "✓" not in line or "(approved" not in line]
    # Without the option that replaces an approval.
    words = run.agent.silent or run.agent.words
    run.ask(FIRST, prepared=True, words=tuple(word.format(FIRST) for word in words))

    def check(seen: list[Seen]) -> list[str]:
        # The session in which the person approved may have ended with a capture.
        found = [(each.moment, each.intent, each.content) for each in seen]
        return [] if found[-1:] == [("after", FIRST, "1")] and found[0][2] == "0" else ["expected 0 and 1"]

    return [*wrong, repr(output[-2000:])] if wrong else run.settled(check)


def _hook_lines(run: Run) -> list[str]:
    """Return the lines of the agent's hooks; other agents whose settings it reads have none."""
    lines = run.repo.run("envlog", "status", check=True).out.splitlines()
    first = lines.index(f"{run.agent.name}, for this repository") + 1
    return [line for line in lines[first:] if line.startswith("  ")][: len(HOOKS[run.agent.name].hooks)]


def hundred_calls(run: Run) -> Result:
    """Each of a hundred tools changes one line: print how much the history and the transcript take."""
    git = run.repo.path / ".git"
    before = _size(git)
    run.ask(FIRST, limit=5 * LONG)
    wrong = run.settled(lambda seen: [] if seen and seen[-1].content == str(CALLS) else ["not all calls"])
    contents = [each.content for each in run.history()]
    home = Path(run.repo.env["HOME"])
    transcript = max((path.stat().st_size for path in home.rglob("*.jsonl")), default=0)
    stored = _size(git) - before
    print(f"  {len(contents)} snapshots, {stored >> 10} KB stored, transcript {transcript >> 10} KB")
    return [*wrong, *([] if set(map(str, range(CALLS + 1))) == set(contents) else [f"{contents}"])]


def _size(directory: Path) -> int:
    return sum(path.lstat().st_size for path in directory.rglob("*"))


def two_agents(run: Run) -> Result:
    """Another agent works in the same tree at the same time: each has its own intent and session."""
    names = [agent.name for agent in AGENTS]
    other = AGENTS[(names.index(run.agent.name) + 1) % len(AGENTS)]
    if not (run.place / "node_modules" / other.package).exists():
        return f"{other.name} is not installed"
    for name in (other.name, *other.beside):
        run.repo.run("envlog", "install", "--agent", name, check=True)
    with model({SECOND: [other.shell("echo 1 >g"), other.shell("echo 2 >g")]}) as server:
        second = start(other, run.repo, server.address, SECOND)
        run.ask(FIRST)
        second.communicate(timeout=LONG)

        def check(seen: list[Seen]) -> list[str]:
            by = {(each.snapshot.actor.agent, each.intent) for each in seen if each.moment != "-"}
            last = seen[-1].content if seen else None
            expected = {(run.agent.name, FIRST), (other.name, SECOND)}
            return (
                [] if by == expected and last == "2" else [f"expected {expected} and 2, not {by} and {last}"]
            )

        return run.settled(check)


ENTER_WORKTREE = Call("EnterWorktree", {"name": "try"})
EXIT_WORKTREE = Call("ExitWorktree", {"action": "remove", "discard_changes": True})
ISOLATED = Call(
    "Agent", {"description": "tests", "prompt": SUBAGENT, "subagent_type": "general-purpose",
              "isolation": "worktree", "run_in_background": False},
)  # fmt: skip


def scripts(agent: Agent) -> dict[str, Script]:
    """Return the script of each case."""
    one, two = agent.write(1), agent.write(2)
    slow = agent.shell("echo 1 >f; sleep 60")
    isolated: Script = {SUBAGENT: [two], FIRST: [one, ISOLATED]}
    discarded: Script = {FIRST: [one, ENTER_WORKTREE, two, EXIT_WORKTREE]}
    return {
        "basic": {FIRST: [one, CAPTURE, two]},
        "three turns": {FIRST: [one], SECOND: [two], THIRD: [agent.write(3)]},
        "parallel": {FIRST: [(one, agent.shell("echo 1 >g"))]},
        "subagent in the background": {
            SUBAGENT: [two],
            FIRST: [one, *([agent.subagent] if isinstance(agent.subagent, Call) else []), agent.shell("sleep 6")],
        },
        "failing tool": {FIRST: [agent.shell("echo 1 >f; exit 3")]},
        "Esc": {FIRST: [slow], SECOND: [two]},
        "its own worktree switch": {FIRST: [one]},
        "isolated subagent": isolated,
        "isolated subagent, forks": isolated,
        "discarded worktree": discarded,
        "discarded worktree, forks": discarded,
        "provider error": {FIRST: [one, Failure(400)], SECOND: [two]},
        "killed": {FIRST: [slow], SECOND: [two]},
        "PID 1": {FIRST: [one], SECOND: [two]},
        "worktree": {FIRST: [one]},
        "subdirectory after cd": {FIRST: [agent.shell("echo 1 >f; mkdir nested; cd nested"),
                                          agent.shell("cd nested 2>/dev/null; echo 2 >../f")]},
        "both levels": {FIRST: [one]},
        "no git": {FIRST: [one]},
        "plugin": {FIRST: [one]},
        "hooks not called": {FIRST: [one], SECOND: [two]},
        "repairs": repair_script(agent),
        "repairs, asked": repair_script(agent),
        "approval": {FIRST: [one]},
        "100 tool calls": {FIRST: [agent.write(number) for number in range(1, CALLS + 1)]},
        "two agents at once": {FIRST: [one, two]},
    }  # fmt: skip


CASES: dict[str, Callable[[Run], Result]] = {
    "basic": basic,
    "three turns": three_turns,
    "parallel": parallel,
    "subagent in the background": subagent,
    "failing tool": failing_tool,
    "Esc": escape,
    "provider error": provider_error,
    "killed": killed,
    "PID 1": pid_1,
    "worktree": worktree,
    "its own worktree switch": own_worktree,
    "isolated subagent": isolated_subagent,
    "isolated subagent, forks": partial(isolated_subagent, forks=True),
    "discarded worktree": discarded_worktree,
    "discarded worktree, forks": partial(discarded_worktree, forks=True),
    "subdirectory after cd": nested,
    "both levels": both_levels,
    "no git": no_git,
    "two agents at once": two_agents,
    "hooks not called": silent,
    "repairs": repairs,
    "repairs, asked": asked,
    "plugin": plugin,
    "approval": approval,
    "100 tool calls": hundred_calls,
}
TABLE = [case for case in CASES if case != "100 tool calls"]
"""The cases of a run that names none."""


def run_case(case: str, agent: Agent, place: Path, work: Path) -> Result:
    """Run one case in a new working tree."""
    repo = working_tree(agent, place, work, plain=case == "no git")
    with model(scripts(agent)[case]) as server:
        return CASES[case](Run(agent, place, repo, server))
