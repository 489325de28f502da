// Elements, numbers and labels. Text from the history is only ever inserted as a text node.

const byId = (id) => document.getElementById(id);

/** Return an element with attributes, listeners (`onclick`) and children; strings become text nodes. */
function make(name, attributes = {}, ...children) {
  const made = name.startsWith("svg:")
    ? document.createElementNS("http://www.w3.org/2000/svg", name.slice(4))
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

/** Return text from the history, isolated so that its writing direction does not affect the text around it. */
const isolated = (text) => make("bdi", {}, text);

/** Return the line for lists: the title, or the first line of the intent. */
const subject = (snapshot) => snapshot.title || snapshot.intent.trimStart().split("\n", 1)[0].trim() || "(no intent)";

/** Maximum characters of a heading; a longer one is cut at a word. */
const LONGEST_HEADING = 160;
function heading(snapshot) {
  const letters = [...subject(snapshot)];
  return letters.length > LONGEST_HEADING ? `${letters.slice(0, LONGEST_HEADING).join("").replace(/\s+\S{0,30}$/, "")}…` : letters.join("");
}

const numbers = new Intl.NumberFormat("en-US");
const count = (number, one, many = `${one}s`) => `${numbers.format(number)} ${number === 1 ? one : many}`;

function bytes(number) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (number >= 1024 && unit < units.length - 1) { number /= 1024; unit += 1; }
  return `${unit && number < 10 ? number.toFixed(1) : Math.round(number)} ${units[unit]}`;
}

// Times are shown in the time zone of the capture, which is recorded with them.
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const dayKey = (at) => at.slice(0, 10);
const clock = (at) => at.slice(11, 16);
function dayWords(at) {
  const [year, month, day] = at.slice(0, 10).split("-").map(Number);
  const weekday = DAYS[new Date(Date.UTC(year, month - 1, day)).getUTCDay()];
  return `${weekday}, ${day} ${MONTHS[month - 1]} ${year}`;
}
const shortDay = (at) => `${Number(at.slice(8, 10))} ${MONTHS[Number(at.slice(5, 7)) - 1]}`;

const VERDICTS = {
  pass: { mark: "✓", word: "passed" },
  fail: { mark: "✗", word: "failed" },
  error: { mark: "!", word: "gave no result" },
  none: { mark: "·", word: "not checked" },
};
const isCarried = (snapshot) => Boolean(snapshot.verify && snapshot.verify.carried_from && !snapshot.verify.claimed_by);
// As in the list: a result carried over from an equal snapshot is no check of this one; the summary mentions it.
const verdictOf = (snapshot) => (snapshot.verify && !isCarried(snapshot) ? snapshot.verify.status : "none");
const summaryOf = (snapshot) => [
  snapshot.unfinished ? "the last check gave no result" : "",
  isCarried(snapshot) ? `${VERDICTS[snapshot.verify.status].mark} from ${snapshot.verify.at.slice(0, 10)} ${clock(snapshot.verify.at)}` : "",
  snapshot.summary,
].filter(Boolean).join(" · ");

const TRIGGERS = {
  manual: "manually", commit: "after a commit", merge: "after a merge", checkout: "after a checkout",
  rewrite: "after commits were rewritten", agent: "for an agent's turn", run: "for a command",
  watch: "by git envlog watch", restore: "by a restore", api: "by a program",
};

const CLASS_OF = { "+": "plus", "−": "minus", "~": "tilde" };

function changeWords(snapshot) {
  const { added, modified, removed } = snapshot.env_changed;
  const parts = [["+", added], ["~", modified], ["−", removed]].filter(([, number]) => number);
  if (!parts.length) return "nothing changed";
  return `${parts.map(([mark, number]) => mark + numbers.format(number)).join(" ")} ${added + modified + removed === 1 ? "file" : "files"}`;
}
