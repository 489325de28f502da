// A moment in the list, in a search, on paper.

/** The ranges below an element in which one of some words, in lower case, stands. */
function rangesOf(place, words) {
  const ranges = [];
  const texts = document.createTreeWalker(place, NodeFilter.SHOW_TEXT);
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    const lower = node.data.toLowerCase();
    // Where a letter becomes two, places are others.
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

function row(moment, several, choose) {
  const verdict = verdictOf(moment);
  const { mark, word } = VERDICTS[verdict];
  return make("li", { class: "row" }, make("button", { type: "button", tabindex: "-1", onclick: choose },
    make("span", { class: `v v-${verdict}` }, make("span", { "aria-hidden": "true" }, mark), make("span", { class: "unseen" }, word)),
    make("span", { class: "when" }, clock(moment.at)),
    // Its own direction for the whole line: what does not fit is cut off at its end, and not where it begins.
    make("span", { class: "why", dir: "auto" }, subject(moment)),
    make("span", {}, ...moment.names.slice(0, 2).map(badge)),
    make("span", { class: "told" }, several ? said(`${moment.timeline} · `) : "", said(summaryOf(moment)), moment.folds ? ` · ${count(moment.folds, "snapshot")}` : "")));
}

function haystack(moment) {
  return [
    moment.id, moment.title || "", moment.intent, ...moment.names, moment.trigger, moment.actor.agent || "", moment.actor.name,
    verdictOf(moment), moment.verify ? moment.verify.command : "", moment.external_id || "", moment.branch || "",
    ...moment.notes.map((note) => note.text), ...moment.effects.map((effect) => effect.text),
    ...moment.story.map((fact) => `${fact.probe} ${fact.key} ${fact.before || ""} ${fact.after || ""}`),
    ...moment.env_changed.paths.map((one) => one.path), ...moment.extent.areas.map((area) => area.path),
  ].join("\n").toLowerCase();
}

function printed(moments) {
  const parts = [];
  let last = "";
  for (const moment of moments.filter((one) => !one.folded_into)) {
    if (dayKey(moment.at) !== last) {
      last = dayKey(moment.at);
      parts.push(make("h2", {}, dayWords(moment.at)), make("ol"));
    }
    parts[parts.length - 1].append(make("li", {},
      make("span", { class: `v-${verdictOf(moment)}` }, VERDICTS[verdictOf(moment)].mark), make("span", {}, clock(moment.at)), make("code", {}, moment.id.slice(0, 7)),
      make("span", {}, make("b", {}, said(heading(moment))), ...moment.names.map(badge)),
      make("span", { class: "told" }, said(summaryOf(moment)))));
  }
  return parts;
}
