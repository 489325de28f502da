// The list, the selection, the search and the keys.

const NARROW = matchMedia("(max-width: 900px)");
/** Matches are highlighted in at most this many rows. */
const MARKED_ROWS = 300;

class Page {
  constructor({ title, moments: snapshots }) {
    this.title = title;
    this.newestFirst = snapshots;
    this.lines = new Map();
    for (const snapshot of [...snapshots].reverse()) {
      if (!this.lines.has(snapshot.timeline)) this.lines.set(snapshot.timeline, []);
      this.lines.get(snapshot.timeline).push(snapshot);
    }
    this.haystacks = snapshots.map(haystack);
    this.shown = snapshots.map((_, index) => index);
    this.verdicts = new Set();
    this.chosen = 0;
    this.head();
    this.list();
    this.chips();
    this.charts = new Charts(byId("drawn"), byId("readout"), (snapshot) => this.choose(snapshots.indexOf(snapshot), { reveal: true }));
    this.listen();
    this.filter();
    const named = this.named();
    this.choose(Math.max(0, named), { quiet: true, reveal: named >= 0 });
  }

  /** Return the index of the snapshot that the address names, or -1. */
  named() {
    const id = location.hash.slice(1);
    return id.length < 4 ? -1 : this.newestFirst.findIndex((one) => one.id.startsWith(id));
  }

  head() {
    const [newest, oldest] = [this.newestFirst[0], this.newestFirst[this.newestFirst.length - 1]];
    byId("title").replaceChildren(isolated(this.title));
    const span = dayKey(newest.at) === dayKey(oldest.at) ? dayWords(newest.at) : `${dayWords(oldest.at)} to ${dayWords(newest.at)}`;
    byId("span").replaceChildren(`${count(this.newestFirst.length, "snapshot")} · ${span} · `, isolated(this.lines.size === 1 ? newest.timeline : count(this.lines.size, "timeline")));
  }

  list() {
    const days = [];
    this.rows = this.newestFirst.map((snapshot, index) => {
      const day = dayKey(snapshot.at);
      if (!days.length || days[days.length - 1].day !== day) {
        const rows = make("ol");
        days.push({ day, rows, section: make("section", { class: "day" }, make("h3", {}, dayWords(snapshot.at)), rows) });
      }
      const made = row(snapshot, this.lines.size > 1, () => this.choose(index, { reveal: NARROW.matches }));
      days[days.length - 1].rows.append(made);
      return made;
    });
    this.days = days;
    byId("rows").replaceChildren(...days.map((one) => one.section));
  }

  chips() {
    const found = Object.keys(VERDICTS).filter((key) => this.newestFirst.some((one) => verdictOf(one) === key));
    byId("chips").replaceChildren(...found.map((key) => {
      const number = this.newestFirst.filter((one) => verdictOf(one) === key).length;
      const chip = make("button", { type: "button", "aria-pressed": "false" }, make("span", { class: `v-${key}`, "aria-hidden": "true" }, `${VERDICTS[key].mark} `), `${numbers.format(number)} ${VERDICTS[key].word}`);
      chip.addEventListener("click", () => {
        const pressed = chip.getAttribute("aria-pressed") !== "true";
        chip.setAttribute("aria-pressed", String(pressed));
        this.verdicts[pressed ? "add" : "delete"](key);
        this.filter();
      });
      return chip;
    }));
  }

  filter() {
    const words = byId("query").value.toLowerCase().split(/\s+/).filter(Boolean);
    this.shown = [];
    this.newestFirst.forEach((snapshot, index) => {
      // Fold as the list on the terminal does; a search includes folded snapshots.
      const folded = snapshot.folded_into && !words.length && !this.verdicts.size;
      const fits = !folded && (!this.verdicts.size || this.verdicts.has(verdictOf(snapshot))) && words.every((word) => this.haystacks[index].includes(word));
      this.rows[index].hidden = !fits;
      if (fits) this.shown.push(index);
    });
    for (const one of this.days) one.section.hidden = [...one.rows.children].every((made) => made.hidden);
    byId("nothing").hidden = this.shown.length > 0;
    const all = this.newestFirst.length;
    const filtered = words.length || this.verdicts.size;
    const folded = filtered ? 0 : all - this.shown.length;
    byId("found").textContent = [
      filtered && this.shown.length !== all ? `${numbers.format(this.shown.length)} of ` : "",
      count(all, "snapshot"),
      folded ? ` (${numbers.format(folded)} folded)` : "",
    ].join("");
    this.words = words;
    if (this.shown.length && this.rows[this.chosen].hidden) this.choose(this.shown[0], { quiet: true });
    else { this.updateTabStop(); this.markWords(); }
  }

  /** Highlight the search words in the list and the details, if the browser can. */
  markWords() {
    if (!window.Highlight) return;
    const places = this.words.length ? [...this.shown.slice(0, MARKED_ROWS).map((index) => this.rows[index].firstChild), byId("card")] : [];
    CSS.highlights.set("found", new Highlight(...places.flatMap((place) => rangesOf(place, this.words))));
  }

  choose(index, { focus = false, quiet = false, reveal = false } = {}) {
    const button = (at) => this.rows[at].firstChild;
    button(this.chosen).removeAttribute("aria-current");
    this.chosen = index;
    this.rows[index].hidden = false;
    button(index).setAttribute("aria-current", "true");
    this.updateTabStop();
    const snapshot = this.newestFirst[index];
    byId("card").replaceChildren(...card(snapshot, this.before(index), {
      several: this.lines.size > 1,
      copy: (text) => this.copy(text),
      goTo: (id) => this.linkTo(id),
      why: (key, words) => this.why(snapshot, key, words),
    }));
    byId("card").scrollTop = 0;
    this.place();
    this.charts.show(snapshot, this.lines.get(snapshot.timeline));
    this.markWords();
    if (focus) button(index).focus({ preventScroll: true });
    if (focus || reveal) this.rows[index].scrollIntoView({ block: NARROW.matches ? "start" : "nearest" });
    if (quiet) return;
    history.replaceState(null, "", `#${snapshot.id.slice(0, 12)}`);
    // A screen reader announces the focused element itself.
    if (!focus) this.announce(`${subject(snapshot)}, ${VERDICTS[verdictOf(snapshot)].word}, ${changeWords(snapshot)}`);
  }

  /** Put the details below the row in a narrow window, otherwise next to the list. */
  place() {
    const [at, home] = [byId("card"), NARROW.matches ? this.rows[this.chosen] : byId("columns")];
    if (at.parentNode !== home) home.append(at);
  }

  /** Return a function that shows a snapshot, or null if it is not on this page. */
  linkTo(id) {
    const found = this.newestFirst.findIndex((one) => one.id === id);
    if (found < 0) return null;
    return () => {
      if (this.rows[found].hidden) this.clear();
      this.choose(found, { focus: true });
    };
  }

  /** Show which snapshots up to this one changed the same thing; each is a link to its details. */
  why(snapshot, key, words) {
    const line = this.lines.get(snapshot.timeline);
    const found = line.slice(0, line.indexOf(snapshot) + 1).reverse().filter((one) => keysOf(one).has(key));
    byId("why").replaceChildren(...origins(words, found, { goTo: (id) => this.linkTo(id) }));
    byId("why").scrollIntoView({ block: "nearest" });
  }

  // Tab stops at one row: the selected one, or the first if that is hidden.
  updateTabStop() {
    if (this.tabStop) this.tabStop.tabIndex = -1;
    const at = this.rows[this.chosen].hidden ? this.shown[0] : this.chosen;
    this.tabStop = at === undefined ? null : this.rows[at].firstChild;
    if (this.tabStop) this.tabStop.tabIndex = 0;
  }

  before(index) {
    const line = this.newestFirst[index].timeline;
    return this.newestFirst.slice(index + 1).find((one) => one.timeline === line) || null;
  }

  move(step) {
    const at = this.shown.indexOf(this.chosen);
    this.goTo(Math.min(this.shown.length - 1, Math.max(0, at + step)));
  }

  goTo(place) { if (this.shown.length) this.choose(this.shown[place], { focus: true }); }

  nextWithVerdict(verdict) {
    const found = this.shown.find((index) => index > this.chosen && verdictOf(this.newestFirst[index]) === verdict);
    if (found === undefined) this.announce(`no older snapshot that ${VERDICTS[verdict].word}`);
    else this.choose(found, { focus: true });
  }

  listen() {
    const query = byId("query");
    query.addEventListener("input", () => this.filter());
    query.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === "ArrowDown") { event.preventDefault(); this.goTo(0); }
    });
    byId("clear").addEventListener("click", () => this.clear());
    byId("keys").addEventListener("click", () => byId("help").showModal());
    byId("theme").addEventListener("click", () => nextTheme());
    for (const button of document.querySelectorAll("[data-along]")) {
      button.addEventListener("click", () => {
        document.querySelectorAll("[data-along]").forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
        this.charts.setAlong(button.dataset.along);
      });
    }
    document.addEventListener("keydown", (event) => this.key(event));
    window.addEventListener("hashchange", () => {
      const found = this.named();
      if (found >= 0) this.choose(found, { quiet: true, reveal: true });
    });
    NARROW.addEventListener("change", () => this.place());
    window.addEventListener("beforeprint", () => byId("print").replaceChildren(...printed(this.shown.map((index) => this.newestFirst[index]))));
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || byId("help").open) return;
    if (event.key === "Escape") { this.clear(); return; }
    if (event.target.matches("input, textarea, select")) return;
    const own = event.target === document.body || event.target.matches(".row > button, #moments");
    const act = {
      j: () => this.move(1), k: () => this.move(-1), "/": () => byId("query").focus(), "?": () => byId("help").showModal(),
      g: () => this.nextWithVerdict("pass"), b: () => this.nextWithVerdict("fail"), t: () => nextTheme(),
      ...(own && { ArrowDown: () => this.move(1), ArrowUp: () => this.move(-1), Home: () => this.goTo(0), End: () => this.goTo(this.shown.length - 1) }),
    }[event.key];
    if (act) { event.preventDefault(); act(); }
  }

  clear() {
    byId("query").value = "";
    this.verdicts.clear();
    byId("chips").querySelectorAll("button").forEach((chip) => chip.setAttribute("aria-pressed", "false"));
    this.filter();
    this.rows[this.chosen].firstChild.focus({ preventScroll: true });
    this.rows[this.chosen].scrollIntoView({ block: "nearest" });
  }

  copy(text) {
    const done = () => this.announce(`copied: ${text}`);
    const by = () => {
      const field = make("textarea", { class: "unseen", "aria-hidden": "true" });
      field.value = text;
      document.body.append(field);
      field.select();
      document.execCommand("copy");
      field.remove();
      done();
    };
    // Some browsers offer no clipboard to a file opened from disk; use the old command there.
    if (navigator.clipboard) navigator.clipboard.writeText(text).then(done, by); else by();
  }

  announce(text) { byId("said").textContent = text; }
}

const THEMES = ["", "dark", "light"];
function nextTheme() {
  const root = document.documentElement;
  const next = THEMES[(THEMES.indexOf(root.dataset.theme || "") + 1) % THEMES.length];
  setTheme(next);
  byId("said").textContent = next || "system";
  // Without local storage the choice lasts as long as the page.
  try { localStorage.setItem("git-envhist-theme", next); } catch { /* not available for a file in some browsers */ }
}
function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme; else delete document.documentElement.dataset.theme;
  byId("theme").textContent = theme ? `Theme: ${theme}` : "Theme";
}

try { setTheme(localStorage.getItem("git-envhist-theme") || ""); } catch { /* not available */ }
// The page's data omits empty members.
const EMPTY = { names: [], missing: [], notes: [], effects: [], tasks: [], services: [], calls: [], head: null, branch: null, external_id: null, trusted: null, restored_from: null };
const data = JSON.parse(byId("data").textContent);
new Page({ ...data, moments: data.moments.map((one) => ({ ...EMPTY, ...one })) });
