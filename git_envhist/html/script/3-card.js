// One moment in full.

const FILES_AT_ONCE = 8;

function card(moment, older, shared) {
  const verdict = moment.verify;
  const parts = [...headed(moment), facts([
    ["Moment", make("button", { class: "id", type: "button", title: "Copy the whole id", onclick: () => shared.copy(moment.id) }, moment.id.slice(0, 7))],
    ["Timeline", shared.several ? said(moment.timeline) : null],
    ["Taken", `${dayWords(moment.at)}, ${clock(moment.at)} (UTC${moment.at.slice(19)})`],
    ["Why then", [TRIGGERS[moment.trigger] || moment.trigger, moment.actor.agent ? make("span", {}, " · ", said([moment.actor.agent, moment.actor.agent_version].filter(Boolean).join(" "))) : ""]],
    ["By", said(moment.actor.name)],
    ["Check", verdict ? verdictWords(verdict) : make("span", { class: "v-none" }, "not checked")],
    ["Brought back", moment.restored_from ? elsewhere(moment.restored_from, shared) : null],
    ["Code", moment.head ? [make("code", {}, moment.head.slice(0, 7)), moment.branch ? make("span", {}, " ", said(moment.branch.replace("refs/heads/", ""))) : ""] : null],
    ["Holds", `${bytes(moment.extent.bytes)} in ${count(moment.extent.files, "file")}${moment.complete ? "" : ", not complete"}`],
    ["From elsewhere", moment.external_id ? said(moment.external_id) : null],
    ["Services", moment.services.length ? said(moment.services.join(", ")) : null],
  ])];
  if (moment.trusted === false) parts.push(make("p", { class: "claim" }, "No key of this machine signed this moment: what it says is a claim."));
  if (moment.missing.length) parts.push(make("h3", {}, "Not in it"), ...lacking(moment));
  if (moment.notes.length) parts.push(make("h3", {}, "Notes"), ...moment.notes.map((note) => make("p", { class: "words", dir: "auto" }, note.text)));
  if (moment.effects.length) parts.push(make("h3", {}, "Done outside"), ...moment.effects.map((effect) => make("p", {}, said(effect.text), effect.refused ? " (refused, not done)" : effect.irreversible ? " (cannot be undone)" : "")));
  if (moment.tasks.length) parts.push(make("h3", {}, "Tasks"), ...moment.tasks.map((task) => make("p", {}, `${task.status}: `, said(task.text))));
  parts.push(make("h3", {}, older ? "What this step changed" : "What the first of these moments changed"), ...story(moment));
  parts.push(...places(moment));
  parts.push(make("h3", {}, "At a prompt"), commands(moment, older, shared));
  return parts;
}

/** Why it was taken: a line as a heading; what more there is stands below, or is unfolded. */
function headed(moment) {
  const [line, rest] = [subject(moment), moment.intent.trimStart().split("\n").slice(1).join("\n").trim()];
  const isLong = heading(moment) !== line;
  return [
    make("h2", { id: "intent", dir: "auto" }, heading(moment)),
    moment.names.length ? make("p", { class: "names" }, ...moment.names.map(badge)) : null,
    isLong ? make("details", {}, make("summary", {}, "All of it"), make("p", { class: "words", dir: "auto" }, moment.intent)) : null,
    rest && !isLong ? make("p", { class: "words", dir: "auto" }, rest) : null,
  ].filter(Boolean);
}

function elsewhere(id, shared) {
  const going = shared.goTo(id);
  const words = id.slice(0, 7);
  return going ? make("button", { class: "id", type: "button", title: "Show that moment", onclick: going }, words) : make("code", {}, words);
}

function lacking(moment) {
  const told = moment.missing.map((one) => make("p", {}, make("span", { class: "mono" }, said(one.path)), `: ${one.why}`));
  return moment.more.missing ? [...told, make("p", { class: "told" }, `and ${count(moment.more.missing, "more", "more")}: git envlog show tells them all`)] : told;
}

const badge = (name) => make("span", { class: "badge", title: name }, said(name));

function facts(rows) {
  return make("dl", { class: "facts" }, ...rows.filter(([, value]) => value !== null).flatMap(([name, value]) =>
    [make("dt", {}, name), make("dd", {}, ...[value].flat())]));
}

function verdictWords(verdict) {
  const { mark, word } = VERDICTS[verdict.status];
  const tail = [
    verdict.signal ? `ended by signal ${verdict.signal}` : verdict.timed_out ? "took too long" : verdict.exit_code ? `exit ${verdict.exit_code}` : "",
    verdict.duration_ms ? (verdict.duration_ms < 1000 ? `${verdict.duration_ms} ms` : `${(verdict.duration_ms / 1000).toFixed(1)} s`) : "",
    verdict.carried_from ? `known from ${verdict.carried_from.slice(0, 7)}` : "",
    { differ: "services differ", unknown: "services not compared" }[verdict.services] || "",
    verdict.claimed_by ? `claimed by ${verdict.claimed_by}` : "",
  ].filter(Boolean);
  return make("span", {}, make("span", { class: `v-${verdict.status}` }, make("b", { "aria-hidden": "true" }, `${mark} `), word), " ", make("code", {}, said(verdict.command)), tail.length ? make("span", {}, " · ", said(tail.join(" · "))) : "");
}

/** A row for each probe and place, in the order and the words of `git envdiff`. */
function story(moment) {
  if (!moment.rows.length) return [make("p", {}, ...fileList(moment))];
  const body = moment.rows.map(({ probe, place, cells }) =>
    make("tr", {}, make("th", { scope: "row", class: "probe" }, said(probe)), make("td", { class: "mono place", title: place }, said(place)), make("td", { class: "changes" }, ...cellList(cells))));
  body.push(make("tr", {}, make("th", { scope: "row", class: "probe" }, "files"), make("td", { class: "place" }), make("td", { class: "changes" }, ...fileList(moment))));
  return [make("table", { class: "story" }, make("thead", { class: "unseen" }, make("tr", {}, ...["what", "where", "changes"].map((word) => make("th", { scope: "col" }, word)))), make("tbody", {}, ...body))];
}

const MARK_OF = { A: "+", M: "~", D: "−", R: "~", T: "~" };

/** A few files by their names, more of them by their number. */
function fileList(moment) {
  const { added, modified, removed, paths } = moment.env_changed;
  if (!paths.length || paths.length > FILES_AT_ONCE || paths.length < added + modified + removed) return [changeWords(moment)];
  return paths.flatMap(({ status, path }) => {
    const mark = MARK_OF[status] || "~";
    return [make("span", { class: "fact" }, make("span", { class: CLASS_OF[mark] }, `${mark} `), make("span", { class: "mono" }, said(path))), " "];
  });
}

function cellList(cells) {
  return cells.flatMap((cell) => {
    const style = CLASS_OF[cell[0]];
    return [make("span", { class: "fact" }, style ? make("span", { class: style }, `${cell[0]} `) : "", said(style ? cell.slice(2) : cell)), " "];
  });
}

const weightOf = (area) => Math.max(area.bytes_before, area.bytes_after);
const wordOf = (area) => (area.modified || (area.added && area.removed) ? "changed" : area.added ? "added" : "removed");

/** Where the files of a step lie: a picture as large as what changed, and the same as a table. */
function places(moment) {
  const areas = moment.extent.areas;
  if (!areas.length) return [];
  // One place alone would be a picture of nothing.
  const drawn = areas.length > 1 ? areas.filter(weightOf) : [];
  const map = make("div", { class: `map ${drawn.length < 3 ? "flat" : drawn.length < 8 ? "low" : ""}`, role: "img", "aria-label": `Where it changed, by size; the table below says the same. The largest: ${areas[0].path || "several places"}.` });
  const legend = make("p", { class: "legend" }, ...["added", "changed", "removed"].filter((word) => drawn.some((area) => wordOf(area) === word)).map((word) => make("span", {}, make("i", { class: `is-${word}` }), word)));
  const table = make("table", {},
    make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "place"), make("th", { scope: "col", class: "n" }, "files"), make("th", { scope: "col", class: "n" }, "before"), make("th", { scope: "col", class: "n" }, "after"))),
    make("tbody", {}, ...areas.map((area) => make("tr", {}, make("th", { scope: "row", class: "mono" }, said(area.path || "elsewhere")), make("td", { class: "n" }, numbers.format(area.added + area.modified + area.removed)), make("td", { class: "n" }, bytes(area.bytes_before)), make("td", { class: "n" }, bytes(area.bytes_after))))));
  const parts = [make("h3", {}, "Files, by size")];
  if (drawn.length) {
    parts.push(map, legend);
    requestAnimationFrame(() => fill(map, drawn));
  }
  parts.push(make("details", { open: drawn.length ? undefined : true }, make("summary", {}, `As a table: ${count(areas.length, "place")}`), table));
  return parts;
}

// With the directory it stands in: many files are called `index.js`.
const lastNames = (path) => path.split(/(?<=\/)/).slice(-3).join("");

function fill(map, areas) {
  const { clientWidth: width, clientHeight: height } = map;
  if (!width) return;
  // The smallest keep a corner in which they can be seen.
  const total = areas.reduce((sum, area) => sum + weightOf(area), 0);
  const floor = total / 400;
  const boxes = squarify(areas.map((area) => Math.max(weightOf(area), floor)), width, height);
  map.replaceChildren(...areas.map((area, place) => {
    const box = boxes[place];
    const label = box.w > 64 && box.h > 34;
    const made = make("div", { class: `is-${wordOf(area)}`, title: `${area.path || "elsewhere"}  ${bytes(weightOf(area))}` },
      label ? said(lastNames(area.path) || "elsewhere") : "", label ? make("small", {}, bytes(weightOf(area))) : "");
    // As shares: when the window changes, or paper is narrower, they follow.
    const share = (part, whole) => `${((100 * part) / whole).toFixed(3)}%`;
    Object.assign(made.style, { left: share(box.x, width), top: share(box.y, height), width: share(box.w, width), height: share(box.h, height) });
    return made;
  }));
}

/** Rectangles as near to squares as can be, in the order of their weights: rows along the shorter side. */
function squarify(weights, width, height) {
  const scale = (width * height) / weights.reduce((sum, weight) => sum + weight, 0);
  const left = weights.map((weight) => weight * scale);
  const boxes = [];
  let [x, y, w, h] = [0, 0, width, height];
  while (boxes.length < left.length) {
    const side = Math.min(w, h);
    const row = [];
    let sum = 0, worst = Infinity;
    for (const area of left.slice(boxes.length)) {
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

function commands(moment, older, shared) {
  const short = moment.id.slice(0, 10);
  const told = [
    [`git envrestore -n ${short}`, "what going back would do"],
    [`git envrestore ${short}`, "go back; undone by --undo"],
    older ? [`git envdiff ${older.id.slice(0, 10)}..${short}`, "this step in full"] : null,
    [`git envlog show ${short}`, "the card, with what the check wrote"],
  ].filter(Boolean);
  return make("div", { class: "commands" }, ...told.map(([words, why]) =>
    make("button", { type: "button", title: "Copy", onclick: () => shared.copy(words) }, make("code", {}, words), make("span", {}, why))));
}
