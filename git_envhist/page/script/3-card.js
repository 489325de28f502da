// One moment in full.

const FACTS_AT_ONCE = 14;

function card(moment, older, newer, shared) {
  const verdict = moment.verify;
  const short = moment.id.slice(0, 7);
  const parts = [
    make("h2", { id: "intent" }, said(moment.intent || "(no intent)"), ...moment.names.map(badge)),
    facts([
      ["Moment", make("button", { class: "id", type: "button", title: "Copy the whole id", onclick: () => shared.copy(moment.id) }, short)],
      ["Taken", `${dayWords(moment.at)}, ${clock(moment.at)} (UTC${moment.at.slice(19)})`],
      ["Why then", [TRIGGERS[moment.trigger] || moment.trigger, moment.actor.agent ? make("span", {}, " · ", said([moment.actor.agent, moment.actor.agent_version].filter(Boolean).join(" "))) : ""]],
      ["By", said(moment.actor.name)],
      ["Check", verdict ? verdictWords(verdict) : make("span", { class: "v-none" }, "not checked")],
      ["Code", moment.head ? [make("code", {}, moment.head.slice(0, 7)), moment.branch ? make("span", {}, " ", said(moment.branch.replace("refs/heads/", ""))) : ""] : null],
      ["Holds", `${bytes(moment.extent.bytes)} in ${count(moment.extent.files, "file")}${moment.complete ? "" : ", not complete"}`],
      ["From elsewhere", moment.external_id ? said(moment.external_id) : null],
      ["Services", moment.services.length ? said(moment.services.join(", ")) : null],
    ]),
  ];
  if (moment.trusted === false) parts.push(make("p", { class: "claim" }, "No key of this machine signed this moment: what it says is a claim."));
  if (moment.notes.length) parts.push(make("h3", {}, "Notes"), ...moment.notes.map((note) => make("p", {}, said(note.text))));
  if (moment.effects.length) parts.push(make("h3", {}, "Done outside"), ...moment.effects.map((effect) => make("p", {}, said(effect.text), effect.irreversible ? " (cannot be undone)" : "")));
  if (moment.tasks.length) parts.push(make("h3", {}, "Tasks"), ...moment.tasks.map((task) => make("p", {}, `${task.status}: `, said(task.text))));
  parts.push(make("h3", {}, older ? "What this step changed" : "What the first of these moments changed"), ...story(moment));
  parts.push(...places(moment));
  parts.push(make("h3", {}, "At a prompt"), commands(moment, older, shared));
  parts.push(make("button", { class: "plain back", type: "button", onclick: shared.back }, "Back to the list"));
  return parts;
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
    verdict.claimed_by ? `claimed by ${verdict.claimed_by}` : "",
  ].filter(Boolean);
  return make("span", {}, make("span", { class: `v-${verdict.status}` }, make("b", { "aria-hidden": "true" }, `${mark} `), word), " ", make("code", {}, said(verdict.command)), tail.length ? make("span", {}, " · ", said(tail.join(" · "))) : "");
}

/** A row for each probe and place, what was asked for first. */
function story(moment) {
  if (!moment.story.length) return [make("p", {}, changeWords(moment))];
  const rows = new Map();
  for (const fact of moment.story) {
    const key = JSON.stringify([fact.probe, placeOf(fact.key)]);
    rows.set(key, [...(rows.get(key) || []), fact]);
  }
  const body = [...rows].map(([key, facts]) => {
    const [probe, place] = JSON.parse(key);
    return make("tr", {}, make("th", { scope: "row", class: "probe" }, said(probe)), make("td", { class: "mono place", title: place }, said(place)), make("td", {}, ...factList(facts)));
  });
  body.push(make("tr", {}, make("th", { scope: "row", class: "probe" }, "files"), make("td"), make("td", {}, changeWords(moment))));
  const table = make("table", {}, make("thead", { class: "unseen" }, make("tr", {}, ...["what", "where", "changes"].map((word) => make("th", { scope: "col" }, word)))), make("tbody", {}, ...body));
  return moment.more.story ? [table, make("p", { class: "told" }, `and ${count(moment.more.story, "more", "more")}: git envdiff tells them all`)] : [table];
}

function factList(facts) {
  const told = facts.slice(0, FACTS_AT_ONCE).flatMap((fact) => {
    const mark = markOf(fact);
    return [make("span", { class: "fact" }, make("span", { class: CLASS_OF[mark] }, `${mark} `), said(factWords(fact))), " "];
  });
  const more = facts.length - FACTS_AT_ONCE;
  return more > 0 ? [...told, `and ${more} more`] : told;
}

const weightOf = (area) => Math.max(area.bytes_before, area.bytes_after);
const wordOf = (area) => (area.modified || (area.added && area.removed) ? "changed" : area.added ? "added" : "removed");

/** Where the files of a step lie: a picture as large as what changed, and the same as a table. */
function places(moment) {
  const areas = moment.extent.areas;
  if (!areas.length) return [];
  const drawn = areas.filter(weightOf);
  const map = make("div", { class: "map", role: "img", "aria-label": `Where it changed, by size; the table below says the same. The largest: ${areas[0].path || "several places"}.` });
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
    Object.assign(made.style, { left: `${box.x}px`, top: `${box.y}px`, width: `${box.w}px`, height: `${box.h}px` });
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
