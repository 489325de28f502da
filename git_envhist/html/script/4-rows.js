// A snapshot in the list, in a search and on paper.

/** Return the ranges below an element that match one of some lower-case words. */
function rangesOf(place, words) {
  const ranges = [];
  const texts = document.createTreeWalker(place, NodeFilter.SHOW_TEXT);
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    const lower = node.data.toLowerCase();
    // If lower case changes the length, offsets would not match.
    if (lower.length !== node.data.length) continue;
    for (const word of words) {
      for (let at = lower.indexOf(word); at >= 0; at = lower.indexOf(word, at + word.length)) {
        const range = new Range();
        range.setStart(node, at);
        range.setEnd(node, at + word.length);
        ranges.push(range);
      }
    }
  }
  return ranges;
}

function row(snapshot, several, choose) {
  const verdict = verdictOf(snapshot);
  const { mark, word } = VERDICTS[verdict];
  return make("li", { class: "row" }, make("button", { type: "button", tabindex: "-1", onclick: choose },
    make("span", { class: `v v-${verdict}` }, make("span", { "aria-hidden": "true" }, mark), make("span", { class: "unseen" }, word)),
    make("span", { class: "when" }, clock(snapshot.at)),
    // The writing direction of the text itself, so that a long line is cut at its end.
    make("span", { class: "why", dir: "auto" }, subject(snapshot)),
    make("span", {}, ...snapshot.names.slice(0, 2).map(badge)),
    make("code", { class: "id" }, snapshot.id.slice(0, 7)),
    make("span", { class: "told" }, several ? isolated(`${snapshot.timeline} · `) : "", isolated(summaryOf(snapshot)), snapshot.folds ? ` · ${count(snapshot.folds, "snapshot")}` : "")));
}

function haystack(snapshot) {
  return [
    snapshot.id, snapshot.title || "", snapshot.intent, ...snapshot.names, snapshot.trigger, snapshot.actor.agent || "", snapshot.actor.name,
    verdictOf(snapshot), snapshot.verify ? snapshot.verify.command : "", snapshot.external_id || "", snapshot.branch || "",
    ...snapshot.notes.map((note) => note.text), ...snapshot.effects.map((effect) => effect.text),
    ...snapshot.story.map((fact) => `${fact.probe} ${fact.key} ${fact.before || ""} ${fact.after || ""}`),
    ...snapshot.env_changed.paths.map((one) => one.path), ...snapshot.extent.areas.map((area) => area.path),
  ].join("\n").toLowerCase();
}

function printed(snapshots) {
  const parts = [];
  let last = "";
  for (const snapshot of snapshots.filter((one) => !one.folded_into)) {
    if (dayKey(snapshot.at) !== last) {
      last = dayKey(snapshot.at);
      parts.push(make("h2", {}, dayWords(snapshot.at)), make("ol"));
    }
    parts[parts.length - 1].append(make("li", {},
      make("span", { class: `v-${verdictOf(snapshot)}` }, VERDICTS[verdictOf(snapshot)].mark), make("span", {}, clock(snapshot.at)), make("code", {}, snapshot.id.slice(0, 7)),
      make("span", {}, make("b", {}, isolated(heading(snapshot))), ...snapshot.names.map(badge)),
      make("span", { class: "told" }, isolated(summaryOf(snapshot)))));
  }
  return parts;
}
