// Who is right where: two runs on the same questions.
const SIDES_RIGHT = [
  ["both", "both right"],
  ["first", "only A right"],
  ["second", "only B right"],
  ["neither", "neither right"],
];

function sideOf(row, measure, first, second) {
  const at = head.measures.findIndex((one) => one.key === measure);
  const a = row.runs[first].v[at] >= 1,
    b = row.runs[second].v[at] >= 1;
  return a ? (b ? "both" : "first") : b ? "second" : "neither";
}

function rightMeasures() {
  return head.measures.filter((measure) => measure.right);
}

function sidesFigure(questions) {
  if (runs.length < 2 || !rightMeasures().length) return null;
  const { first, second } = plotted,
    picks = runs.map((run, at) => [String(at), run.label]);
  const redo = (label, name) => (value) => {
    plotted[name] = Number(value);
    showPlots(label);
  };
  const controls = el(
    "div",
    { class: "controls" },
    chooser("Run A", picks, String(first), redo("Run A", "first")),
    chooser("Run B", picks, String(second), redo("Run B", "second")),
  );
  const name = "Who is right where",
    holder = [],
    rows = [];
  for (const measure of rightMeasures()) {
    const counts = { both: 0, first: 0, second: 0, neither: 0 };
    for (const row of questions) counts[sideOf(row, measure.key, first, second)]++;
    const parts = SIDES_RIGHT.map(([key, label]) => ({ label, count: counts[key], look: key, key }));
    holder.push(el("p", { class: "share-name", text: "Right means: " + measure.right }));
    holder.push(
      shareBar({
        name: name + ", right means " + measure.right,
        text: parts.map((part) => part.label + ": " + part.count).join(", "),
        parts,
      }),
    );
    holder.push(
      el(
        "ul",
        { class: "legend" },
        ...parts.map((part) =>
          el(
            "li",
            {},
            el("i", { class: "box " + part.look }),
            el("a", {
              href: exploreLink({ who: part.key, by: measure.key, a: runs[first].name, b: runs[second].name }),
              text: part.label + ": " + plural(part.count, "question"),
            }),
          ),
        ),
      ),
    );
    rows.push([measure.right, ...parts.map((part) => part.count)]);
  }
  return figureOf(
    name,
    "Two runs that are right on different questions complement each other. Follow a count to its questions.",
    controls,
    el("div", {}, ...holder),
    table(name, ["Right means", ...SIDES_RIGHT.map(([, label]) => label)], rows),
  );
}
