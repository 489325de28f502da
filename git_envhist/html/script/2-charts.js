// Charts of the size of the environment, its packages and the check results, by snapshot or by time.

const CHART = { left: 70, right: 14, top: 6, size: 92, gap: 20, packages: 62, above: 13, ticks: 12, foot: 20 };
const COLOURS = 6;

/** Return the number of packages of a kind; a kind may have the name of an inherited property. */
const packagesOf = (snapshot, kind) => (Object.hasOwn(snapshot.extent.packages, kind) ? snapshot.extent.packages[kind] : 0);

/** Return a round maximum for a scale; half of it is also round. */
function roundTop(most, base) {
  const unit = base ** Math.floor(Math.log(most) / Math.log(base));
  const ends = [1, 2, 3, 4, 5, 6, 8].flatMap((one) => [one, one * 10, one * 100]).sort((a, b) => a - b);
  return (ends.find((end) => end * unit >= most && Number.isInteger((end * unit) / 2)) || base) * unit;
}

class Charts {
  /** `choose` is called with the snapshot that was clicked on. */
  constructor(place, readout, choose) {
    this.place = place;
    this.readout = readout;
    this.snapshots = [];
    this.along = "steps";
    this.chosen = 0;
    place.addEventListener("pointermove", (event) => this.hover(this.nearest(event)));
    place.addEventListener("pointerleave", () => this.hover(null));
    place.addEventListener("click", (event) => choose(this.snapshots[this.nearest(event)]));
    new ResizeObserver(() => { if (place.clientWidth !== this.wide) this.draw(); }).observe(place);
  }

  /** Show a snapshot in the chart of its timeline, oldest first. */
  show(snapshot, snapshots) {
    const others = snapshots !== this.snapshots;
    this.chosen = snapshots.indexOf(snapshot);
    this.snapshots = snapshots;
    if (others) {
      // Packages of the machine hardly change and would hide those of the project.
      const kinds = new Set(snapshots.flatMap((one) => Object.keys(one.extent.packages)));
      kinds.delete("system");
      this.kinds = [...kinds].sort((a, b) => this.most(b) - this.most(a));
      this.draw();
    } else {
      this.mark(this.marks.at, this.chosen);
      this.describe(this.chosen);
    }
  }

  most(kind) { return Math.max(0, ...this.snapshots.map((one) => packagesOf(one, kind))); }

  setAlong(along) { this.along = along; this.draw(); }

  hover(index) {
    this.mark(this.marks.over, index);
    this.describe(index === null ? this.chosen : index);
  }

  mark(line, index) {
    line.setAttribute("visibility", index === null ? "hidden" : "visible");
    if (index === null) return;
    line.setAttribute("x1", this.xs[index]);
    line.setAttribute("x2", this.xs[index]);
  }

  nearest(event) {
    const x = event.clientX - this.place.getBoundingClientRect().left;
    let low = 0, high = this.xs.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (this.xs[middle] < x) low = middle; else high = middle;
    }
    return Math.abs(this.xs[low] - x) <= Math.abs(this.xs[high] - x) ? low : high;
  }

  describe(index) {
    const snapshot = this.snapshots[index];
    const packages = this.kinds.filter((kind) => packagesOf(snapshot, kind)).map((kind) => {
      const dot = make("i");
      dot.style.background = `var(--p${(this.kinds.indexOf(kind) % COLOURS) + 1})`;
      return make("span", {}, dot, `${kind} ${numbers.format(packagesOf(snapshot, kind))}`);
    });
    this.readout.replaceChildren(
      make("span", {}, make("b", {}, `${shortDay(snapshot.at)} ${clock(snapshot.at)}`)),
      make("span", {}, `${bytes(snapshot.extent.bytes)} in ${count(snapshot.extent.files, "file")}`),
      ...packages,
      make("span", { class: "why" }, `${VERDICTS[verdictOf(snapshot)].mark} `, isolated(subject(snapshot))),
    );
  }

  draw() {
    this.wide = this.place.clientWidth;
    const width = Math.max(this.wide, 240);
    const stacked = this.kinds.length > 0;
    const tall = CHART.top + CHART.size + (stacked ? CHART.gap + CHART.packages : 0) + CHART.above + CHART.ticks + CHART.foot;
    this.xs = this.positions(CHART.left, width - CHART.right);
    const drawing = make("svg:svg", {
      viewBox: `0 0 ${width} ${tall}`, height: tall, role: "img",
      "aria-label": this.summary(),
    });
    this.drawSize(drawing, width, CHART.top);
    if (stacked) this.drawPackages(drawing, width, CHART.top + CHART.size + CHART.gap);
    const ticks = tall - CHART.foot - CHART.ticks;
    this.drawTicks(drawing, ticks);
    this.drawDays(drawing, width, ticks + CHART.ticks + 14);
    this.marks = { at: this.line(drawing, "at", ticks), over: this.line(drawing, "over", ticks) };
    this.place.replaceChildren(drawing);
    this.mark(this.marks.at, this.chosen);
    this.mark(this.marks.over, null);
    this.describe(this.chosen);
  }

  line(drawing, name, bottom) {
    const made = make("svg:line", { class: name, y1: CHART.top, y2: bottom + CHART.ticks });
    drawing.append(made);
    return made;
  }

  positions(left, right) {
    const last = this.snapshots.length - 1;
    // A single snapshot fills the whole width.
    if (!last) return [left];
    const times = this.snapshots.map((one) => Date.parse(one.at));
    const span = Math.max(times[last] - times[0], 1);
    const share = this.along === "time" ? (index) => (times[index] - times[0]) / span : (index) => index / last;
    let reached = left;
    // If the clock was set back, the line must not go backwards.
    return this.snapshots.map((_, index) => (reached = Math.max(reached, left + share(index) * (right - left))));
  }

  frame(drawing, width, top, height, name, most, words) {
    for (const share of [0, 0.5, 1]) {
      const y = top + height * (1 - share);
      drawing.append(make("svg:line", { class: "grid", x1: CHART.left, x2: width - CHART.right, y1: y, y2: y }));
      if (share) drawing.append(make("svg:text", { x: CHART.left - 8, y: y + 4, "text-anchor": "end" }, words(most * share)));
    }
    drawing.append(make("svg:text", { class: "name", x: CHART.left - 8, y: top + height + 4, "text-anchor": "end" }, name));
  }

  drawSize(drawing, width, top) {
    const most = roundTop(Math.max(2, ...this.snapshots.map((one) => one.extent.bytes)), 1024);
    const ys = this.snapshots.map((one) => top + CHART.size * (1 - one.extent.bytes / most));
    this.frame(drawing, width, top, CHART.size, "size", most, bytes);
    const path = this.snapshots.length > 1 ? this.steps(ys) : `${this.steps(ys)}H${width - CHART.right}`;
    drawing.append(make("svg:path", { class: "size", d: `${path}V${top + CHART.size}H${this.xs[0]}Z` }));
    drawing.append(make("svg:path", { class: "size-line", d: path }));
  }

  drawPackages(drawing, width, top) {
    const totals = this.snapshots.map((one) => this.kinds.reduce((sum, kind) => sum + packagesOf(one, kind), 0));
    const most = roundTop(Math.max(2, ...totals), 1000);
    this.frame(drawing, width, top, CHART.packages, "packages", most, (number) => numbers.format(number));
    const below = this.snapshots.map(() => 0);
    this.kinds.forEach((kind, place) => {
      const low = below.map((number) => top + CHART.packages * (1 - number / most));
      this.snapshots.forEach((one, index) => { below[index] += packagesOf(one, kind); });
      const high = below.map((number) => top + CHART.packages * (1 - number / most));
      const drawn = this.snapshots.length > 1
        ? `${this.steps(high)}${this.steps(low, true)}Z`
        : `${this.steps(high)}H${width - CHART.right}V${low[0]}H${this.xs[0]}Z`;
      const path = make("svg:path", { class: "packages", d: drawn });
      path.style.fill = `var(--p${(place % COLOURS) + 1})`;
      drawing.append(path);
    });
  }

  // Each value holds until the next snapshot: draw a step line.
  steps(ys, backwards = false) {
    if (!backwards) return ys.map((y, index) => (index ? `H${this.xs[index].toFixed(1)}V${y.toFixed(1)}` : `M${this.xs[0].toFixed(1)} ${y.toFixed(1)}`)).join("");
    let path = `V${ys[ys.length - 1].toFixed(1)}`;
    for (let index = ys.length - 1; index > 0; index -= 1) path += `V${ys[index].toFixed(1)}H${this.xs[index].toFixed(1)}V${ys[index - 1].toFixed(1)}`;
    return `${path}H${this.xs[0].toFixed(1)}`;
  }

  drawTicks(drawing, y) {
    const spacing = this.snapshots.length > 1 ? (this.xs[this.xs.length - 1] - this.xs[0]) / (this.snapshots.length - 1) : 8;
    const wide = Math.min(7, Math.max(1.2, spacing - 1));
    // Draw checked snapshots over unchecked ones if they overlap.
    const order = ["none", "error", "pass", "fail"];
    for (const verdict of order) {
      this.snapshots.forEach((one, index) => {
        if (verdictOf(one) !== verdict) return;
        const high = verdict === "none" ? 4 : CHART.ticks;
        drawing.append(make("svg:rect", { class: `tick-${verdict}`, x: this.xs[index] - wide / 2, y: y + (CHART.ticks - high) / 2, width: wide, height: high, rx: 1 }));
      });
    }
    drawing.append(make("svg:text", { class: "name", x: CHART.left - 8, y: y + 10, "text-anchor": "end" }, "checks"));
  }

  drawDays(drawing, width, y) {
    let free = 0, last = "";
    this.snapshots.forEach((one, index) => {
      const day = dayKey(one.at);
      if (day === last) return;
      last = day;
      const x = Math.min(this.xs[index], width - CHART.right - 34);
      if (x < free) return;
      free = x + 52;
      drawing.append(make("svg:text", { x, y }, shortDay(one.at)));
    });
  }

  summary() {
    const [first, last] = [this.snapshots[0], this.snapshots[this.snapshots.length - 1]];
    const results = Object.keys(VERDICTS).map((key) => `${this.snapshots.filter((one) => verdictOf(one) === key).length} ${VERDICTS[key].word}`);
    return `From ${shortDay(first.at)} to ${shortDay(last.at)} the environment went from ${bytes(first.extent.bytes)} to ${bytes(last.extent.bytes)}. ${count(this.snapshots.length, "snapshot")}: ${results.join(", ")}.`;
  }
}
