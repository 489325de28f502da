// Hooks of git-envhist for OpenCode: `git envlog install --agent opencode` writes this file, `uninstall` removes it.
//
// Each event calls the script envhist/hooks/agent-opencode in the user's data directory. Only a tool that may change
// something waits for it. The script prints nothing and never fails; without it, this plugin does nothing.
import { spawn, spawnSync } from "node:child_process"
import { existsSync } from "node:fs"
import { homedir } from "node:os"

const given = process.env.XDG_DATA_HOME ?? ""
const data = given.startsWith("/") ? given : `${homedir()}/.local/share`
const script = @SCRIPT@
const silent = { stdio: ["pipe", "ignore", "ignore"] }

const wait = (event) =>
  new Promise((done) => {
    const child = spawn(script, ["before"], { ...silent, cwd: event.cwd })
    child.on("error", done)
    child.on("close", done)
    child.stdin.on("error", done)
    child.stdin.end(JSON.stringify(event))
  })

// OpenCode may exit as soon as a handler returns, so the event is handed over before that.
const tell = (kind, event) => {
  spawnSync(script, [kind], { ...silent, cwd: event.cwd, input: JSON.stringify(event) })
}

export const GitEnvhist = async ({ client, directory, worktree }) => {
  const sessions = new Map()
  const used = new Set()
  const project = worktree && worktree !== "/" ? worktree : directory

  const learn = (info) => {
    if (info?.id) sessions.set(info.id, { parent: info.parentID, version: info.version, agent: info.agent })
  }
  const known = async (id) => {
    if (!sessions.has(id)) {
      const found = await client.session.get({ path: { id } }).catch(() => undefined)
      learn(found?.data ?? { id })
    }
    return sessions.get(id)
  }
  // The session of a subagent has its parent's session, and its own id as the id of the subagent.
  const described = async (id) => {
    let root = id
    for (let up = (await known(root)).parent; up && up !== root; up = (await known(root)).parent) root = up
    const { version, agent } = await known(id)
    const subagent = root === id ? {} : { agent_id: id, agent_type: agent }
    used.add(root)
    return { session_id: root, workspace_roots: [project], cwd: directory, agent_version: version, ...subagent }
  }
  const handle = async (id, act) => {
    try {
      if (id && existsSync(script)) await act(await described(id))
    } catch {
      // No failure of ours may end a tool or a turn.
    }
  }
  const end = () => {
    for (const id of used) {
      try {
        tell("end", { session_id: id, workspace_roots: [project], cwd: directory })
      } catch {
        // OpenCode exits.
      }
    }
    used.clear()
  }
  process.on("exit", end)

  return {
    "chat.message": ({ sessionID, messageID, agent }, { message, parts }) =>
      handle(sessionID, (event) => {
        if (agent && sessions.get(sessionID)) sessions.get(sessionID).agent = agent
        const written = parts.filter((part) => part.type === "text" && !part.synthetic)
        // A message without text of a person is written by OpenCode itself.
        if (!written.length) return
        const prompt = written.map((part) => part.text).join("\n")
        tell("prompt", { ...event, prompt, turn_id: message?.id ?? messageID })
      }),
    "tool.execute.before": ({ tool, sessionID, callID }, { args }) =>
      handle(sessionID, (event) => wait({ ...event, tool_name: tool, tool_use_id: callID, tool_input: args })),
    "tool.execute.after": ({ tool, sessionID, callID, args }) =>
      handle(sessionID, (event) => tell("done", { ...event, tool_name: tool, tool_use_id: callID, tool_input: args })),
    event: async ({ event }) => {
      if (event.type === "session.created" || event.type === "session.updated") learn(event.properties.info)
      if (event.type === "session.idle") await handle(event.properties.sessionID, (each) => tell("after", each))
    },
    "dispose": async () => end(),
  }
}
