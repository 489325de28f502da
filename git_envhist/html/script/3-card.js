// The details of one snapshot.

const FILES_AT_ONCE = 8;

function card(snapshot, older, shared) {
  const verdict = snapshot.verify;
  const parts = [...headed(snapshot), facts([
    ["Snapshot", make("button", { class: "id", type: "button", title: "Copy the full id", onclick: () => shared.copy(snapshot.id) }, snapshot.id.slice(0, 7))],
    ["Timeline", shared.several ? isolated(snapshot.timeline) : null],
    ["Taken", `${dayWords(snapshot.at)}, ${clock(snapshot.at)} (UTC${snapshot.at.slice(19)})`],
    ["Trigger", [TRIGGERS[snapshot.trigger] || snapshot.trigger, snapshot.actor.agent ? make("span", {}, " · ", isolated([snapshot.actor.agent, snapshot.actor.agent_version].filter(Boolean).join(" "))) : ""]],
    ["By", isolated(snapshot.actor.name)],
    ["Check", verdict ? verdictWords(verdict) : make("span", { class: "v-none" }, "not checked")],
    ["Last check", snapshot.unfinished ? verdictWords(snapshot.unfinished) : null],
    ["Restored from", snapshot.restored_from ? elsewhere(snapshot.restored_from, shared) : null],
    ["Code", snapshot.head ? [make("code", {}, snapshot.head.slice(0, 7)), snapshot.branch ? make("span", {}, " ", isolated(snapshot.branch.replace("refs/heads/", ""))) : ""] : null],
    ["Size", `${bytes(snapshot.extent.bytes)} in ${count(snapshot.extent.files, "file")}${snapshot.complete ? "" : ", incomplete"}`],
    ["External id", snapshot.external_id ? isolated(snapshot.external_id) : null],
    ["Services", snapshot.services.length ? isolated(snapshot.services.join(", ")) : null],
  ])];
  if (snapshot.trusted === false) parts.push(make("p", { class: "claim" }, "Unsigned: none of your keys signed this snapshot, so its text and author are not verified."));
  if (snapshot.missing.length) parts.push(make("h3", {}, "Not captured"), ...lacking(snapshot));
  if (snapshot.notes.length) parts.push(make("h3", {}, "Notes"), ...snapshot.notes.map((note) => make("p", { class: "words", dir: "auto" }, note.text)));
  if (snapshot.effects.length) parts.push(make("h3", {}, "Effects outside the environment"), ...snapshot.effects.map((effect) => make("p", {}, isolated(effect.text), effect.refused ? " (refused, not done)" : effect.irreversible ? " (cannot be undone)" : "")));
  if (snapshot.tasks.length) parts.push(make("h3", {}, "Tasks"), ...snapshot.tasks.map((task) => make("p", {}, `${task.status}: `, isolated(task.text))));
  if (snapshot.calls.length) parts.push(make("h3", {}, "Calls of tools"), ...snapshot.calls.map((call) => make("p", {}, ...callWords(call))));
  parts.push(make("h3", {}, older ? "Changes since the previous snapshot" : "Changes of the first snapshot on this page"), ...story(snapshot, shared));
  parts.push(make("div", { id: "why", "aria-live": "polite" }));
  parts.push(...places(snapshot));
  parts.push(make("h3", {}, "Commands"), commands(snapshot, older, shared));
  return parts;
}

/** Return the intent: one line as a heading, the rest below it or in a disclosure. */
function headed(snapshot) {
  const [line, rest] = [subject(snapshot), snapshot.intent.trimStart().split("\n").slice(1).join("\n").trim()];
  const isLong = heading(snapshot) !== line;
  return [
    make("h2", { id: "intent", dir: "auto" }, heading(snapshot)),
    snapshot.names.length ? make("p", { class: "names" }, ...snapshot.names.map(badge)) : null,
    isLong ? make("details", {}, make("summary", {}, "Full text"), make("p", { class: "words", dir: "auto" }, snapshot.intent)) : null,
    rest && !isLong ? make("p", { class: "words", dir: "auto" }, rest) : null,
  ].filter(Boolean);
}

function elsewhere(id, shared) {
  const show = shared.goTo(id);
  const words = id.slice(0, 7);
  return show ? make("button", { class: "id", type: "button", title: "Show that snapshot", onclick: show }, words) : make("code", {}, words);
}

function lacking(snapshot) {
  const rows = snapshot.missing.map((one) => make("p", {}, make("span", { class: "mono" }, isolated(one.path)), `: ${one.why}`));
  return snapshot.more.missing ? [...rows, make("p", { class: "told" }, `and ${count(snapshot.more.missing, "more", "more")}: git envlog show lists all`)] : rows;
}

const badge = (name) => make("span", { class: "badge", title: name }, isolated(name));

function facts(rows) {
  return make("dl", { class: "facts" }, ...rows.filter(([, value]) => value !== null).flatMap(([name, value]) =>
    [make("dt", {}, name), make("dd", {}, ...[value].flat())]));
}

function verdictWords(verdict) {
  const { mark, word } = VERDICTS[verdict.status];
  const tail = [
    verdict.signal ? `ended by signal ${verdict.signal}` : verdict.timed_out ? "timeout" : verdict.exit_code ? `exit ${verdict.exit_code}` : "",
    verdict.duration_ms ? (verdict.duration_ms < 1000 ? `${verdict.duration_ms} ms` : `${(verdict.duration_ms / 1000).toFixed(1)} s`) : "",
    verdict.carried_from ? `result from ${verdict.carried_from.slice(0, 7)}` : "",
    { differ: "services differ", unknown: "services not compared" }[verdict.services] || "",
    verdict.claimed_by ? `unsigned, by ${verdict.claimed_by}` : "",
  ].filter(Boolean);
  return make("span", {}, make("span", { class: `v-${verdict.status}` }, make("b", { "aria-hidden": "true" }, `${mark} `), word), " ", make("code", {}, isolated(verdict.command)), tail.length ? make("span", {}, " · ", isolated(tail.join(" · "))) : "");
}

/** Return a row for each probe and place, in the order and with the text of `git envdiff`. */
function story(snapshot, shared) {
  if (!snapshot.rows.length) return [make("p", {}, ...fileList(snapshot, shared))];
  const body = snapshot.rows.map(({ label, place, cells }) =>
    make("tr", {}, make("th", { scope: "row", class: "probe" }, isolated(label)), make("td", { class: "mono place", title: place }, isolated(place)), make("td", { class: "changes" }, ...cellList(cells, (cell) => factKey(label, place, cell), shared))));
  body.push(make("tr", {}, make("th", { scope: "row", class: "probe" }, "files"), make("td", { class: "place" }), make("td", { class: "changes" }, ...fileList(snapshot, shared))));
  return [make("table", { class: "story" }, make("thead", { class: "unseen" }, make("tr", {}, ...["what", "where", "changes"].map((word) => make("th", { scope: "col" }, word)))), make("tbody", {}, ...body))];
}

const MARK_OF = { A: "+", M: "~", D: "−", R: "~", T: "~" };

/** List a few files by name, more of them by number. */
function fileList(snapshot, shared) {
  const { added, modified, removed, paths } = snapshot.env_changed;
  if (!paths.length || paths.length > FILES_AT_ONCE || paths.length < added + modified + removed) return [changeWords(snapshot)];
  return paths.flatMap(({ status, path }) => {
    const mark = MARK_OF[status] || "~";
    return [asked(shared, fileKey(path), path, make("span", { class: CLASS_OF[mark] }, `${mark} `), make("span", { class: "mono" }, isolated(path))), " "];
  });
}

function cellList(cells, keyOf, shared) {
  return cells.flatMap((cell) => {
    const style = CLASS_OF[cell[0]];
    if (!style) return [make("span", { class: "fact" }, isolated(cell)), " "];
    return [asked(shared, keyOf(cell), nameIn(cell), make("span", { class: style }, `${cell[0]} `), isolated(cell.slice(2))), " "];
  });
}

/** Return a button that lists the snapshots which changed the same thing; without links, e.g. on paper, its text. */
function asked(shared, key, words, ...children) {
  if (!shared.why) return make("span", { class: "fact" }, ...children);
  return make("button", { type: "button", class: "fact why-of", title: "Show which snapshots changed it", onclick: () => shared.why(key, words) }, ...children);
}

const nameIn = (cell) => cell.slice(2).split(" ", 1)[0];
const fileKey = (path) => `file\0${path}`;
const factKey = (label, place, cell) => `${label}\0${place}\0${nameIn(cell)}`;

/** Return the keys of everything that a snapshot lists as changed. */
function keysOf(snapshot) {
  const facts = snapshot.rows.flatMap(({ label, place, cells }) => cells.filter((cell) => CLASS_OF[cell[0]]).map((cell) => factKey(label, place, cell)));
  return new Set([...facts, ...snapshot.env_changed.paths.map(({ path }) => fileKey(path))]);
}

function callWords(call) {
  return [isolated([call.tool, call.what].filter(Boolean).join(" ")), call.agent ? make("span", {}, ", by ", isolated(call.agent)) : "", call.failed ? ", failed" : ""];
}

/** Return who changed something: each snapshot that lists a change of it, newest first, with the calls that ran before it. */
function origins(words, found, shared) {
  const rows = found.map((snapshot) => make("li", {},
    elsewhere(snapshot.id, shared), ` ${shortDay(snapshot.at)} ${clock(snapshot.at)} `, isolated(heading(snapshot)),
    snapshot.calls.length ? make("p", { class: "words" }, "ran in this step: ", ...snapshot.calls.flatMap((call, place) => [place ? "; " : "", ...callWords(call)])) : ""));
  // A snapshot lists only its first changed paths and facts, so a snapshot that is not listed here may have changed it too.
  const limits = make("p", { class: "words" }, "Of the changes listed on this page; a snapshot with many changes lists only some.");
  return [make("h3", {}, "Why ", isolated(words)), make("ol", { class: "origins" }, ...rows), limits];
}

const weightOf = (area) => Math.max(area.bytes_before, area.bytes_after);
const wordOf = (area) => (area.modified || (area.added && area.removed) ? "changed" : area.added ? "added" : "removed");

/** Return the places of changed files, as a treemap by size and as a table. */
function places(snapshot) {
  const areas = snapshot.extent.areas;
  if (!areas.length) return [];
  // A treemap of one place shows nothing.
  const drawn = areas.length > 1 ? areas.filter(weightOf) : [];
  const map = make("div", { class: `map ${drawn.length < 3 ? "flat" : drawn.length < 8 ? "low" : ""}`, role: "img", "aria-label": `Changed places by size; the table below has the same data. The largest: ${areas[0].path || "several places"}.` });
  const legend = make("p", { class: "legend" }, ...["added", "changed", "removed"].filter((word) => drawn.some((area) => wordOf(area) === word)).map((word) => make("span", {}, make("i", { class: `is-${word}` }), word)));
  const table = make("table", {},
    make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "place"), make("th", { scope: "col", class: "n" }, "files"), make("th", { scope: "col", class: "n" }, "before"), make("th", { scope: "col", class: "n" }, "after"))),
    make("tbody", {}, ...areas.map((area) => make("tr", {}, make("th", { scope: "row", class: "mono" }, isolated(area.path || "other places")), make("td", { class: "n" }, numbers.format(area.added + area.modified + area.removed)), make("td", { class: "n" }, bytes(area.bytes_before)), make("td", { class: "n" }, bytes(area.bytes_after))))));
  const parts = [make("h3", {}, "Files, by size")];
  if (drawn.length) {
    parts.push(map, legend);
    requestAnimationFrame(() => fill(map, drawn));
  }
  parts.push(make("details", { open: drawn.length ? undefined : true }, make("summary", {}, `As a table: ${count(areas.length, "place")}`), table));
  return parts;
}

// Include the parent directories: many files are called `index.js`.
const lastNames = (path) => path.split(/(?<=\/)/).slice(-3).join("");

function fill(map, areas) {
  const { clientWidth: width, clientHeight: height } = map;
  if (!width) return;
  // Keep the smallest areas visible.
  const total = areas.reduce((sum, area) => sum + weightOf(area), 0);
  const floor = total / 400;
  const boxes = squarify(areas.map((area) => Math.max(weightOf(area), floor)), width, height);
  map.replaceChildren(...areas.map((area, place) => {
    const box = boxes[place];
    const label = box.w > 64 && box.h > 34;
    const made = make("div", { class: `is-${wordOf(area)}`, title: `${area.path || "other places"}  ${bytes(weightOf(area))}` },
      label ? isolated(lastNames(area.path) || "other places") : "", label ? make("small", {}, bytes(weightOf(area))) : "");
    // Use percentages, so that the boxes adapt to the window and to paper.
    const share = (part, whole) => `${((100 * part) / whole).toFixed(3)}%`;
    Object.assign(made.style, { left: share(box.x, width), top: share(box.y, height), width: share(box.w, width), height: share(box.h, height) });
    return made;
  }));
}

/** Return rectangles that are nearly square, in the order of their weights (squarified treemap). */
function squarify(weights, width, height) {
  const scale = (width * height) / weights.reduce((sum, weight) => sum + weight, 0);
  const scaled = weights.map((weight) => weight * scale);
  const boxes = [];
  let [x, y, w, h] = [0, 0, width, height];
  while (boxes.length < scaled.length) {
    const side = Math.min(w, h);
    const row = [];
    let sum = 0, worst = Infinity;
    for (const area of scaled.slice(boxes.length)) {
      const next = sum + area;
      const all = [...row, area];
      const ratio = Math.max(...all.map((one) => Math.max((side * side * one) / (next * next), (next * next) / (side * side * one))));
      if (ratio > worst) break;
      row.push(area); sum = next; worst = ratio;
    }
    const thick = sum / side;
    let along = 0;
    for (const area of row) {
      const long = area / thick;
      boxes.push(w >= h ? { x, y: y + along, w: thick, h: long } : { x: x + along, y, w: long, h: thick });
      along += long;
    }
    if (w >= h) { x += thick; w -= thick; } else { y += thick; h -= thick; }
  }
  return boxes;
}

function commands(snapshot, older, shared) {
  const short = snapshot.id.slice(0, 10);
  const lines = [
    [`git envrestore -n ${short}`, "show what a restore would change"],
    [`git envrestore ${short}`, "restore it; --undo undoes it"],
    older ? [`git envdiff ${older.id.slice(0, 10)}..${short}`, "all changes since the previous snapshot"] : null,
    [`git envlog show ${short}`, "details, with the output of the check"],
  ].filter(Boolean);
  return make("div", { class: "commands" }, ...lines.map(([words, why]) =>
    make("button", { type: "button", title: "Copy", onclick: () => shared.copy(words) }, make("code", {}, words), make("span", {}, why))));
}
