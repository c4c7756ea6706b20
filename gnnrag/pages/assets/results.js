// The table of results: measures are rows, runs are columns.
const PASSAGE_ROWS = "Finding the passages",
  ANSWER_ROWS = "The answer",
  COST_ROWS = "What it cost, per question";
const COSTS = [
  ["cost/retriever_calls", "Searches", "queries sent to the retriever", 2],
  ["cost/llm_calls", "Model calls", "calls of a language model", 2],
  ["tokens", "Tokens", "tokens read and written by language models", 0],
  ["cost/usd", "Price", "US dollars paid for them", 5],
  ["cost/seconds_per_question", "Seconds", "time from question to answer, on the machine of the run", 2],
  ["context/size", "Passages read", "passages given to the reader", 1],
  ["failed", "Failed", "questions that ended in an error; they count as wrong", 0],
  ["bad", "Bad replies", "replies of language models that were malformed, missing, without labels, or gave away answers", 0],
];

function figure(run, key) {
  const metrics = run.metrics;
  if (key === "tokens") return (metrics["cost/prompt_tokens"] || 0) + (metrics["cost/completion_tokens"] || 0);
  if (key === "bad") return Object.values(metrics.replies || {}).reduce((sum, row) => sum + row.bad, 0);
  return metrics[key];
}

function differenceOf(at, key) {
  return head.differences.find((row) => row.at === at && row.metric === key);
}

function smallest(row) {
  return Number(row.p_floor.toPrecision(2));
}

function chance(row) {
  const p = row.p;
  if (p < 1 && row.p_floor && p <= row.p_floor) return "p\u00a0≤\u00a0" + smallest(row);
  return p < 0.0001 ? "p\u00a0<\u00a00.0001" : "p\u00a0=\u00a0" + p.toFixed(p < 0.001 ? 4 : 3);
}

function verdict(row, lower) {
  // In words first: the sign and the colour only repeat them.
  const amount = signed(row.difference, 4);
  if (row.p >= 0.05)
    return el("span", {
      class: "verdict unclear",
      text: "≈ " + amount + ", no clear difference (" + chance(row) + ")",
    });
  const better = lower ? row.difference < 0 : row.difference > 0;
  const text = (better ? "▲ " : "▼ ") + amount + ", " + (better ? "better" : "worse") + " (" + chance(row) + ")";
  return el("span", { class: "verdict " + (better ? "better" : "worse"), text });
}

function resultCell(run, at, measure) {
  const value = run.metrics[measure.key],
    interval = run.metrics[measure.key + "_ci"];
  const cell = el(
    "td",
    { "data-key": measure.key, "data-run": run.name },
    el("span", { class: "num", text: fixed(value, 4) }),
  );
  if (interval)
    cell.append(el("span", { class: "ci", text: "95%: " + fixed(interval[0], 4) + " to " + fixed(interval[1], 4) }));
  const row = at && differenceOf(at, measure.key);
  if (row) cell.append(verdict(row, measure.key === "answer/abstained"));
  return cell;
}

function heading(text) {
  return el("tr", { class: "group" }, el("th", { scope: "colgroup", colspan: runs.length + 1, text }));
}

function rowHead(name, help) {
  return el(
    "th",
    { scope: "row" },
    el("span", { class: "measure", text: name }),
    el("span", { class: "help", text: help }),
  );
}

function showResults() {
  const lead = byId("results-lead");
  lead.textContent =
    "Each column is one run: a method that answered the same " +
    plural(head.count, "question") +
    " of " +
    head.name +
    (head.split ? " (" + head.split + ")" : "") +
    ". Figures are means over the questions, from 0 to 1, and higher is better unless the row says " +
    "otherwise; “95%” is the range in which the mean would lie with other questions of the same kind." +
    (runs.length > 1
      ? " Every run is compared with the first: “no clear difference” means that chance alone gives one as large in 5 of 100 cases or more."
      : "");
  const columns = runs.map((run, at) =>
    el(
      "th",
      { scope: "col" },
      el("span", { class: "run" }, swatch(at), " " + run.label),
      el("span", { class: "folder", text: run.name }),
      runs.length > 1 && at === 0 ? el("span", { class: "help", text: "the others are compared with this one" }) : null,
    ),
  );
  const body = el("tbody", {});
  for (const [group, text] of [
    ["passages", PASSAGE_ROWS],
    ["answer", ANSWER_ROWS],
  ]) {
    const rows = head.measures.filter((measure) => measure.group === group);
    if (rows.length) body.append(heading(text));
    for (const measure of rows) {
      body.append(
        el("tr", {}, rowHead(measure.name, measure.help), ...runs.map((run, at) => resultCell(run, at, measure))),
      );
    }
  }
  body.append(heading(COST_ROWS));
  for (const [key, name, help, digits] of COSTS) {
    if (!runs.some((run) => figure(run, key))) continue;
    body.append(
      el(
        "tr",
        {},
        rowHead(name, help),
        ...runs.map((run) =>
          el(
            "td",
            { "data-key": key, "data-run": run.name },
            el("span", { class: "num", text: fixed(figure(run, key), digits) }),
          ),
        ),
      ),
    );
  }
  if (runs.some((run) => run.notes.length)) {
    body.append(heading("Worth knowing"));
    body.append(
      el(
        "tr",
        { class: "notes" },
        rowHead("Notes", "what a figure must not be taken for"),
        ...runs.map((run) =>
          el("td", {}, run.notes.length ? el("ul", {}, ...run.notes.map((text) => el("li", { text }))) : "–"),
        ),
      ),
    );
  }
  byId("results-table").replaceChildren(
    el("caption", { text: "Results of " + plural(runs.length, "run") }),
    el("thead", {}, el("tr", {}, el("th", { scope: "col", text: "Measure" }), ...columns)),
    body,
  );
  const more = byId("results-more");
  more.replaceChildren();
  if (head.differences.length) more.append(differencesTable());
  if (runs.some((run) => run.metrics.replies)) more.append(repliesTable());
}

function repliesTable() {
  const rows = runs.flatMap((run) =>
    Object.entries(run.metrics.replies || {}).map(([role, counts]) => [run.label, role, counts]),
  );
  const keys = [...new Set(rows.flatMap(([, , counts]) => Object.keys(counts)))];
  return el(
    "details",
    { open: rows.some(([, , counts]) => counts.bad) },
    el("summary", { text: "What language models were asked and did wrong, by role" }),
    region(
      "Replies by role, scrolls sideways",
      table(
        "Replies by role",
        ["Run", "Role", ...keys.map((key) => key.replaceAll("_", " "))],
        rows.map(([run, role, counts]) => [run, role, ...keys.map((key) => counts[key] || 0)]),
      ),
    ),
  );
}

function differencesTable() {
  const names = Object.fromEntries(head.measures.map((measure) => [measure.key, measure.name]));
  const rows = head.differences.map((row) => [
    runs[row.at].label,
    names[row.metric],
    signed(row.difference, 4),
    signed(row.interval[0], 4) + " to " + signed(row.interval[1], 4),
    chance(row),
    row.test,
    row.better,
    row.worse,
    row.same,
  ]);
  const resampled = head.differences
    .filter((row) => row.p_floor)
    .sort((a, b) => a.p_floor - b.p_floor)[0];
  const headings = [
    "Run",
    "Measure",
    "Difference",
    "95% interval",
    "Chance",
    "Test",
    "Questions better",
    "worse",
    "same",
  ];
  return el(
    "details",
    {},
    el("summary", { text: "The differences in detail" }),
    el("p", {
      class: "help",
      text:
        "McNemar's exact test for measures that are right or wrong, else a bootstrap over pairs of questions" +
        (resampled ? ", which can give no p below " + smallest(resampled) : "") +
        ". With many rows, " +
        "one in twenty falls below p = 0.05 by chance.",
    }),
    region("Differences, scrolls sideways", table("Differences against " + runs[0].label, headings, rows)),
  );
}

function swatch(at) {
  const picture = draw("svg", { class: "swatch", viewBox: "0 0 28 14", width: 28, height: 14, "aria-hidden": "true" });
  picture.append(draw("line", { x1: 0, x2: 28, y1: 7, y2: 7, class: "line c" + (at % 8) }), mark(at, 14, 7, 4.5));
  return picture;
}

function mark(at, x, y, size) {
  const kind = MARKS[at % MARKS.length],
    known = { class: "mark c" + (at % 8) };
  if (kind === "square")
    return draw("rect", { ...known, x: x - size * 0.9, y: y - size * 0.9, width: size * 1.8, height: size * 1.8 });
  if (kind === "triangle")
    return draw("path", {
      ...known,
      d: `M${x} ${y - size * 1.2}L${x + size * 1.15} ${y + size * 0.9}H${x - size * 1.15}Z`,
    });
  if (kind === "diamond")
    return draw("path", {
      ...known,
      d: `M${x} ${y - size * 1.3}L${x + size * 1.3} ${y}L${x} ${y + size * 1.3}L${x - size * 1.3} ${y}Z`,
    });
  if (kind === "cross")
    return draw("path", {
      class: "mark open c" + (at % 8),
      d: `M${x - size} ${y - size}L${x + size} ${y + size}M${x - size} ${y + size}L${x + size} ${y - size}`,
    });
  return draw("circle", { class: known.class + (kind === "ring" ? " open" : ""), cx: x, cy: y, r: size });
}
