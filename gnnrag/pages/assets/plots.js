// The figures: each a heading, a line that says how to read it, a picture, and the numbers as a table.
const GROUPINGS = [
  ["by_type", "type of question"],
  ["by_hops", "number of hops"],
  ["by_length", "length of the question"],
];
const plotted = {
  group: "retrieval/recall@5",
  cost: "cost/retriever_calls",
  quality: "retrieval/recall@5",
  first: 0,
  second: 1,
};

function figureOf(name, help, controls, picture, numbers) {
  return el(
    "figure",
    {},
    el("figcaption", {}, el("h3", { text: name }), el("p", { class: "help", text: help }), controls || null),
    el("div", { class: "picture" }, picture),
    el("details", {}, el("summary", { text: "The numbers as a table" }), region("Numbers of: " + name, numbers)),
  );
}

function recallFigure() {
  const ks = [
    ...new Set(
      runs
        .flatMap((run) => Object.keys(run.metrics))
        .filter((key) => /^retrieval\/recall@\d+$/.test(key))
        .map((key) => Number(key.split("@")[1])),
    ),
  ].sort((a, b) => a - b);
  const value = (run, k) => run.metrics["retrieval/recall@" + k];
  if (!ks.length || !runs.some((run) => typeof value(run, ks[0]) === "number")) return null;
  const name = "Recall against the number of passages";
  return figureOf(
    name,
    "Recall@k: which share of the gold passages is among the first k that were found. A curve further up and left finds them sooner.",
    null,
    lineChart({
      name,
      text: "Recall grows with k; the table below has the numbers.",
      xName: "k, the passages that count (log scale)",
      yName: "Recall@k",
      ticks: ks,
      log: true,
      series: runs.map((run, at) => ({ at, points: ks.map((k) => [k, value(run, k)]) })),
    }),
    table(
      "Recall@k",
      ["Run", ...ks.map((k) => "k = " + k)],
      runs.map((run) => [run.label, ...ks.map((k) => fixed(value(run, k), 4))]),
    ),
  );
}

function groupFigure(key, what) {
  const present = runs.filter((run) => run.metrics[key]);
  if (!present.length) return null;
  const groups = [...new Set(present.flatMap((run) => Object.keys(run.metrics[key])))].sort((a, b) =>
    a.localeCompare(b, "en", { numeric: true }),
  );
  const measure = head.measures.find((one) => one.key === plotted.group) || head.measures[0];
  if (!groups.length || (groups.length === 1 && groups[0] === "unknown") || !measure) return null;
  const count = (group) => (present[0].metrics[key][group] || { count: 0 }).count;
  const values = runs.map((run) => groups.map((group) => ((run.metrics[key] || {})[group] || {})[measure.key]));
  const name = measure.name + " by " + what;
  const labels = groups.map((group) => group.replace(/^0(?=\d)/, ""));
  return figureOf(
    name,
    measure.name + ": " + measure.help + ".",
    null,
    barChart({
      name,
      text: groups.length + " groups; the table below has the numbers.",
      yName: measure.name,
      groups: labels,
      values,
    }),
    table(
      name,
      [what[0].toUpperCase() + what.slice(1), "Questions", ...runs.map((run) => run.label)],
      groups.map((group, i) => [labels[i], count(group), ...runs.map((_, at) => fixed(values[at][i], 4))]),
    ),
  );
}

function roundFigure() {
  const rows = runs.map((run) => run.metrics.by_round || []),
    most = Math.max(...rows.map((row) => row.length));
  if (!most) return null;
  const numbers = Array.from({ length: Math.max(2, most) }, (_, i) => i),
    name = "What each round found";
  const cell = (at, i, key) => (rows[at][i] || {})[key];
  return figureOf(
    name,
    "Round 0 searches with the question itself; each later round searches with what the method thought of after reading. Reached: share of the gold " +
      "passages that some query so far had among its first 5; it may lie above Recall@5, which counts 5 passages in all rather than 5 of each query. A method with a single round is a single mark.",
    null,
    lineChart({
      name,
      text: "Share of gold passages reached after each round.",
      xName: "round",
      yName: "gold passages reached",
      ticks: numbers,
      apart: Math.min(8, 40 / runs.length),
      series: runs.map((run, at) => ({ at, points: rows[at].map((row) => [row.round, row.reached]) })),
    }),
    table(
      name,
      ["Run", "Round", "Questions that had it", "Queries per question", "Reached", "Recall@5 of the pool"],
      runs.flatMap((run, at) =>
        rows[at].map((row, i) => [
          run.label,
          row.round,
          row.questions,
          fixed(row.queries, 2),
          fixed(row.reached, 4),
          fixed(cell(at, i, "pool"), 4),
        ]),
      ),
    ),
  );
}

function stepFigure() {
  // Two sides of GraphSearch: sub-questions in words (solid), and in relations of the graph (dashed).
  const sides = runs.flatMap((run, at) =>
    Object.entries(run.metrics.by_step || {})
      .filter(([, row]) => row.length)
      .map(([side, row]) => ({ at, side, row })),
  );
  if (!sides.length) return null;
  const most = Math.max(...sides.map(({ row }) => row.length)),
    numbers = Array.from({ length: most }, (_, i) => i + 1),
    name = "What each sub-question found";
  const label = ({ at, side }) => runs[at].label + ", " + (SIDES[side] || side);
  return figureOf(
    name,
    "Share of the gold passages found up to each sub-question. Solid: sub-questions in words; dashed: in relations of the graph.",
    null,
    lineChart({
      name,
      text: "Share of gold passages after each sub-question.",
      xName: "sub-question",
      yName: "gold passages found",
      ticks: numbers.length > 1 ? numbers : [1, 2],
      series: sides.map(({ at, side, row }) => ({
        at,
        look: side === "relational" ? "dashed" : "",
        points: row.map((value, i) => [i + 1, value]),
      })),
    }),
    table(
      name,
      ["Run and side", ...numbers.map(String)],
      sides.map((one) => [label(one), ...numbers.map((_, i) => fixed(one.row[i], 4))]),
    ),
  );
}

function chooser(label, rows, value, change) {
  const select = el("select", { "aria-label": label });
  options(select, rows, value);
  select.addEventListener("change", () => change(select.value));
  return el("label", {}, label + " ", select);
}

function costFigure() {
  const costs = COSTS.filter(([key]) => key !== "failed" && runs.some((run) => figure(run, key)));
  if (!costs.length || !head.measures.length) return null;
  const cost = costs.find(([key]) => key === plotted.cost) || costs[0];
  const measure = head.measures.find((one) => one.key === plotted.quality) || head.measures[0];
  const name = "Quality against cost";
  const controls = el(
    "div",
    { class: "controls" },
    chooser(
      "Cost",
      costs.map(([key, text]) => [key, text]),
      cost[0],
      (value) => {
        plotted.cost = value;
        showPlots("Cost");
      },
    ),
    chooser(
      "Quality",
      head.measures.map((one) => [one.key, one.name]),
      measure.key,
      (value) => {
        plotted.quality = value;
        showPlots("Quality");
      },
    ),
  );
  return figureOf(
    name,
    "Each mark is a run. Further up is better, further left is cheaper. " + cost[1] + ": " + cost[2] + ".",
    controls,
    pointChart({
      name,
      text: measure.name + " against " + cost[1] + ".",
      xName: cost[1] + " per question",
      yName: measure.name,
      points: runs.map((run) => [figure(run, cost[0]), run.metrics[measure.key]]),
    }),
    table(
      name,
      ["Run", measure.name, ...costs.map(([, text]) => text)],
      runs.map((run) => [
        run.label,
        fixed(run.metrics[measure.key], 4),
        ...costs.map(([key, , , digits]) => fixed(figure(run, key), digits)),
      ]),
    ),
  );
}

async function showPlots(keepFocus) {
  const questions = await unpack("questions"),
    holder = byId("figures");
  WIDE = NARROW.matches ? 400 : 640;
  byId("plots-legend").replaceChildren(
    ...runs.map((run, at) => el("li", {}, swatch(at), el("span", { text: run.label }))),
  );
  const kinds = head.measures.filter((measure) => !measure.key.endsWith("abstained"));
  const pick = chooser(
    "Measure of the pictures by group",
    kinds.map((one) => [one.key, one.name]),
    plotted.group,
    (value) => {
      plotted.group = value;
      showPlots("Measure of the pictures by group");
    },
  );
  const grouped = GROUPINGS.map(([key, what]) => groupFigure(key, what)).filter(Boolean);
  if (grouped.length) grouped[0].querySelector("figcaption").append(el("div", { class: "controls" }, pick));
  const figures = [
    recallFigure(),
    roundFigure(),
    stepFigure(),
    ...grouped,
    costFigure(),
    sidesFigure(questions),
  ].filter(Boolean);
  holder.replaceChildren(...figures);
  if (keepFocus) {
    const select = [...holder.querySelectorAll("select")].find((one) => one.getAttribute("aria-label") === keepFocus);
    if (select) select.focus();
  }
}
