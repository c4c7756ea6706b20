// Finding a question: search, filters, order, and a list that shows one page at a time.
const PAGE = 50;
const state = {
  view: "results",
  q: "",
  a: 0,
  b: Math.min(1, runs.length - 1),
  by: "",
  text: "",
  type: "",
  hops: "",
  who: "",
  sort: "file",
};
let questions = [],
  found = [],
  at = 0;

function folded(text) {
  return text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
}

function valuesOf(row, run, key) {
  return row.runs[run].v[head.measures.findIndex((one) => one.key === key)];
}

function difference(row) {
  // How much better run B is; a tie in the measure is split by the finer ones.
  const keys = [state.by, "retrieval/recall@5", "answer/f1"].filter((key) =>
    head.measures.some((one) => one.key === key),
  );
  return keys.reduce((sum, key, i) => sum + (valuesOf(row, state.b, key) - valuesOf(row, state.a, key)) / 100 ** i, 0);
}

const ORDERS = {
  file: ["as in the file", null],
  gain: ["B much better first", (row) => -difference(row)],
  loss: ["A much better first", (row) => difference(row)],
  apart: ["most different first", (row) => -Math.abs(difference(row))],
  long: ["longest question first", (row) => -row.text.length],
};

function prepare(rows) {
  questions = rows;
  rows.forEach((row, i) => {
    row.at = i;
    row.key = folded([row.text, row.id, ...row.answers, ...row.runs.map((run) => run.a)].join("\n"));
  });
  const types = [...new Set(rows.map((row) => row.type))].sort(),
    hops = [...new Set(rows.map((row) => row.hops))].filter((n) => n !== undefined).sort((a, b) => a - b);
  const count = (test) => rows.filter(test).length;
  options(byId("type"), [
    ["", "all types"],
    ...types.map((type) => [type, type + " (" + count((row) => row.type === type) + ")"]),
  ]);
  options(byId("hops"), [
    ["", "all"],
    ...hops.map((n) => [String(n), n + " (" + count((row) => row.hops === n) + ")"]),
  ]);
  byId("hops-label").hidden = hops.length < 2;
  options(
    byId("sort"),
    Object.entries(ORDERS).map(([key, [text]]) => [key, text]),
  );
  const right = rightMeasures();
  options(
    byId("measure"),
    right.map((measure) => [measure.key, measure.right]),
  );
  if (!right.some((measure) => measure.key === state.by)) state.by = right.length ? right[right.length - 1].key : "";
  for (const id of ["run-a", "run-b"])
    options(
      byId(id),
      runs.map((run, i) => [String(i), run.label]),
    );
}

function filter() {
  const words = folded(state.text).split(/\s+/).filter(Boolean),
    counts = { both: 0, first: 0, second: 0, neither: 0 };
  let tested = 0;
  const rest = questions.filter((row) => {
    tested++;
    return (
      (!state.type || row.type === state.type) &&
      (!state.hops || String(row.hops) === state.hops) &&
      words.every((word) => row.key.includes(word))
    );
  });
  for (const row of rest) {
    row.side = sideOf(row, state.by, state.a, state.b);
    counts[row.side]++;
  }
  const who = [
    ["", "anyone or no one (" + rest.length + ")"],
    ...SIDES_RIGHT.map(([key, label]) => [key, label + " (" + counts[key] + ")"]),
  ];
  who.splice(3, 0, ["differ", "exactly one right (" + (counts.first + counts.second) + ")"]);
  if (runs.length < 2)
    who.splice(1, who.length, ["both", "right (" + counts.both + ")"], ["neither", "wrong (" + counts.neither + ")"]);
  if (!who.some(([key]) => key === state.who)) state.who = "";
  options(byId("who"), who, state.who);
  found = rest.filter(
    (row) =>
      !state.who ||
      row.side === state.who ||
      (state.who === "differ" && (row.side === "first" || row.side === "second")),
  );
  const order = ORDERS[state.sort] && ORDERS[state.sort][1];
  if (order) {
    const keys = new Map(found.map((row) => [row, order(row)]));
    found.sort((x, y) => keys.get(x) - keys.get(y) || x.at - y.at);
  }
  byId("list").dataset.tested = tested;
  byId("count").textContent =
    found.length === questions.length
      ? "All " + plural(found.length, "question")
      : found.length
        ? plural(found.length, "question") + " of " + questions.length.toLocaleString("en")
        : "No question fits. Take a filter off, or search for fewer words.";
  at = Math.max(
    0,
    found.findIndex((row) => row.id === state.q),
  );
  showPage();
}

function badge(row, run, letter) {
  const right = valuesOf(row, run, state.by) >= 1,
    failed = row.runs[run].f;
  const words = failed ? "failed" : right ? "right" : "wrong";
  return el(
    "span",
    { class: "mini " + (right ? "yes" : "no") },
    el("span", { "aria-hidden": "true", text: letter + (right ? " ✓" : " ✗") }),
    el("span", { class: "hidden", text: "run " + letter + " " + words + ", " }),
  );
}

function showPage() {
  const list = byId("list"),
    page = Math.floor(at / PAGE),
    pages = Math.max(1, Math.ceil(found.length / PAGE));
  list.replaceChildren(
    ...found.slice(page * PAGE, page * PAGE + PAGE).map((row) =>
      el(
        "li",
        { role: "option", id: "option-" + row.at, "data-at": row.at, "aria-selected": String(row.id === state.q) },
        badge(row, state.a, "A"),
        runs.length > 1 ? badge(row, state.b, "B") : null,
        el("span", { class: "ask", text: row.text || row.id }),
        el("span", {
          class: "soft",
          text: [row.type, row.hops === undefined ? "" : plural(row.hops, "hop")].filter(Boolean).join(" · "),
        }),
      ),
    ),
  );
  byId("page").textContent = "page " + (page + 1) + " of " + pages;
  byId("earlier").disabled = page === 0;
  byId("later").disabled = page >= pages - 1;
  mark_active();
}

function mark_active() {
  const list = byId("list");
  for (const option of list.children)
    option.setAttribute(
      "aria-selected",
      String(found[at] !== undefined && Number(option.dataset.at) === found[at].at && found[at].id === state.q),
    );
  const active = found[at] && byId("option-" + found[at].at);
  if (active) {
    list.setAttribute("aria-activedescendant", active.id);
    for (const option of list.children) option.classList.toggle("active", option === active);
    const over = active.offsetTop - list.offsetTop;
    if (over < list.scrollTop) list.scrollTop = over;
    else if (over + active.offsetHeight > list.scrollTop + list.clientHeight)
      list.scrollTop = over + active.offsetHeight - list.clientHeight;
  } else list.removeAttribute("aria-activedescendant");
}

function move(to) {
  if (!found.length) return;
  const next = Math.max(0, Math.min(found.length - 1, to)),
    turned = Math.floor(next / PAGE) !== Math.floor(at / PAGE);
  at = next;
  state.q = found[at].id;
  if (turned) showPage();
  else mark_active();
  choose();
}

function turn(pages) {
  move((Math.floor(at / PAGE) + pages) * PAGE);
}

function listKey(event) {
  const steps = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: found.length - 1 };
  const listed = found[at] && found[at].id === state.q;
  if (event.key === "ArrowDown" && !listed) move(at);
  else if (event.key in steps) move(steps[event.key]);
  else if (event.key === "PageDown") turn(1);
  else if (event.key === "PageUp") turn(-1);
  else if (event.key === "Enter" || event.key === " ") {
    move(at);
    byId("question").focus();
  } else return;
  event.preventDefault();
}
