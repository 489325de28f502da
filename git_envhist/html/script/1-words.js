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
const isCarried = (moment) => Boolean(moment.verify && moment.verify.carried_from && !moment.verify.claimed_by);
// As in the list: a verdict that an equal moment has is no check of this one, and its summary says so.
const verdictOf = (moment) => (moment.verify && !isCarried(moment) ? moment.verify.status : "none");
const summaryOf = (moment) => (isCarried(moment)
  ? [moment.summary, `${VERDICTS[moment.verify.status].mark} from ${moment.verify.at.slice(0, 10)} ${clock(moment.verify.at)}`].filter(Boolean).join(" · ")
  : moment.summary);

const TRIGGERS = {
  manual: "by hand", commit: "after a commit", merge: "after a merge", checkout: "after a checkout",
  rewrite: "after a rewrite of commits", agent: "around an agent's turn", run: "around a command",
  watch: "when the environment had settled", restore: "by a restore", api: "by a program",
};

const CLASS_OF = { "+": "plus", "−": "minus", "~": "tilde" };

function changeWords(moment) {
  const { added, modified, removed } = moment.env_changed;
  const told = [["+", added], ["~", modified], ["−", removed]].filter(([, number]) => number);
  if (!told.length) return "nothing changed";
  return `${told.map(([mark, number]) => mark + numbers.format(number)).join(" ")} ${added + modified + removed === 1 ? "file" : "files"}`;
}
