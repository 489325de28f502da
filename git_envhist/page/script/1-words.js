// Elements and words. Text from the history only ever becomes a text node.

const byId = (id) => document.getElementById(id);

/** An element with attributes, listeners (`onclick`) and children; text is text. */
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

/** Somebody's text: its own direction turns nothing around it. */
const said = (text) => make("bdi", {}, text);

/** The line that a list has: the first of an intent, where nothing says more; what it is called where nobody said why. */
const subject = (moment) => moment.title || moment.intent.trimStart().split("\n", 1)[0].trim() || "(no intent)";

/** More letters are no heading any more: it ends at a word before. */
const LONGEST_HEADING = 160;
function heading(moment) {
  const letters = [...subject(moment)];
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

// Times are shown as they were where the moment was taken: the offset is part of what was recorded.
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
  error: { mark: "!", word: "could not be judged" },
  none: { mark: "·", word: "not checked" },
};
const verdictOf = (moment) => (moment.verify ? moment.verify.status : "none");

const TRIGGERS = {
  manual: "by hand", commit: "after a commit", merge: "after a merge", checkout: "after a checkout",
  rewrite: "after a rewrite of commits", agent: "around an agent's turn", run: "around a command",
  watch: "when the environment had settled", restore: "by a restore", api: "by a program",
};

const nameOf = (key) => {
  const parts = key.split("/");
  const last = parts.pop();
  return parts.length && parts[parts.length - 1].startsWith("@") ? `${parts.pop()}/${last}` : last;
};
const placeOf = (key) => key.slice(0, key.length - nameOf(key).length).replace(/\/+$/, "");
const markOf = (fact) => (fact.before === null ? "+" : fact.after === null ? "−" : "~");
const CLASS_OF = { "+": "plus", "−": "minus", "~": "tilde" };

/** `flask 3.0.1`, `click 8.1.7 → 8.5.1`; of what is secret the name alone. */
function factWords(fact) {
  const both = fact.before !== null && fact.after !== null;
  // Of a table that was there and is there, its columns are not said again.
  const plain = (value) => (both ? value.replace(/^([0-9]+ rows?) \(.*\)$/s, "$1") : value);
  const values = [fact.before, fact.after].filter((value) => value !== null && value !== "" && value !== "***").map(plain);
  return [nameOf(fact.key), [...new Set(values)].join(" → ")].filter(Boolean).join(" ");
}

function changeWords(moment) {
  const { added, modified, removed } = moment.env_changed;
  const told = [["+", added], ["~", modified], ["−", removed]].filter(([, number]) => number);
  if (!told.length) return "nothing changed";
  return `${told.map(([mark, number]) => mark + numbers.format(number)).join(" ")} ${added + modified + removed === 1 ? "file" : "files"}`;
}

/** What a list has of a moment, as words. */
function storyWords(moment) {
  const byProbe = new Map();
  for (const fact of moment.story) {
    if (fact.probe === "declared") continue;
    byProbe.set(fact.probe, [...(byProbe.get(fact.probe) || []), fact]);
  }
  const parts = [...byProbe].slice(0, 3).map(([probe, facts]) =>
    `${probe} ${markOf(facts[0])}${factWords(facts[0])}${facts.length > 1 ? ` and ${facts.length - 1} more` : ""}`);
  return [...parts, changeWords(moment)].join(" · ");
}
