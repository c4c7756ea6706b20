// The state of the page stands in its address, so that a link opens the same question and runs again.
const VIEWS = ["results", "plots", "explore"];
const SHORT = { by: "", text: "", type: "", hops: "", who: "", sort: "file", q: "" };

function runNumber(name, otherwise) {
  const at = runs.findIndex((run) => run.name === name);
  if (at >= 0) return at;
  return /^\d+$/.test(name || "") && Number(name) < runs.length ? Number(name) : otherwise;
}

function runKey(at) {
  return runs.filter((run) => run.name === runs[at].name).length > 1 ? String(at) : runs[at].name;
}

function exploreLink(changes) {
  const parts = { view: "explore", a: runKey(state.a), b: runKey(state.b) };
  for (const key in SHORT) if (state[key] !== SHORT[key]) parts[key] = state[key];
  return "#" + new URLSearchParams({ ...parts, ...changes });
}

function remember() {
  const link = exploreLink({ view: state.view });
  if (link !== location.hash) history.replaceState(null, "", link);
  for (const anchor of document.querySelectorAll("nav a")) anchor.href = exploreLink({ view: anchor.dataset.view });
}

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  state.view = VIEWS.includes(given.get("view")) ? given.get("view") : "results";
  state.a = runNumber(given.get("a"), 0);
  state.b = runNumber(given.get("b"), Math.min(1, runs.length - 1));
  for (const key in SHORT) state[key] = given.get(key) || SHORT[key];
  if (!(state.sort in ORDERS)) state.sort = "file";
  if (!rightMeasures().some((measure) => measure.key === state.by)) {
    const answers = rightMeasures().find((measure) => measure.key === "answer/em");
    state.by = (answers || rightMeasures()[0] || { key: "" }).key;
  }
}

function showView() {
  for (const view of VIEWS) byId(view).hidden = view !== state.view;
  for (const anchor of document.querySelectorAll("nav a")) {
    if (anchor.dataset.view === state.view) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
  }
}

function showControls() {
  byId("run-a").value = String(state.a);
  byId("run-b").value = String(state.b);
  byId("measure").value = state.by;
  for (const key of ["text", "type", "hops", "sort"]) byId(key).value = state[key];
  for (const key of ["type", "hops"]) state[key] = byId(key).value; // an address may name what is not there
}

async function apply() {
  readAddress();
  showView();
  if (state.view === "plots") await showPlots();
  if (state.view === "explore") {
    showControls();
    filter();
    await showQuestion();
  }
  remember();
  document.body.dataset.ready = state.view;
}

function choose() {
  remember();
  return showQuestion();
}

function changed(key, value) {
  state[key] = value;
  filter();
  remember();
}

function changedRuns(key, value) {
  changed(key, value);
  return showQuestion();
}

function wire() {
  byId("compare").addEventListener("submit", (event) => event.preventDefault());
  byId("filters").addEventListener("submit", (event) => {
    event.preventDefault();
    byId("list").focus();
  });
  byId("run-a").addEventListener("change", (event) => changedRuns("a", Number(event.target.value)));
  byId("run-b").addEventListener("change", (event) => changedRuns("b", Number(event.target.value)));
  byId("measure").addEventListener("change", (event) => changed("by", event.target.value));
  byId("text").addEventListener("input", (event) => changed("text", event.target.value));
  for (const key of ["type", "hops", "who", "sort"])
    byId(key).addEventListener("change", (event) => changed(key, event.target.value));
  byId("earlier").addEventListener("click", () => {
    at = Math.max(0, (Math.floor(at / PAGE) - 1) * PAGE);
    showPage();
  });
  byId("later").addEventListener("click", () => {
    at = Math.min(found.length - 1, (Math.floor(at / PAGE) + 1) * PAGE);
    showPage();
  });
  byId("list").addEventListener("keydown", listKey);
  byId("list").addEventListener("click", (event) => {
    const option = event.target.closest("[role=option]");
    if (option) move(found.findIndex((row) => row.at === Number(option.dataset.at)));
  });
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault();
    byId("main").focus();
  });
  document.addEventListener("keydown", (event) => {
    if (
      event.key !== "/" ||
      event.ctrlKey ||
      event.metaKey ||
      event.altKey ||
      /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)
    )
      return;
    event.preventDefault();
    if (state.view !== "explore") {
      history.pushState(null, "", exploreLink({}));
      apply().then(() => byId("text").focus());
    } else byId("text").focus();
  });
  window.addEventListener("hashchange", apply);
  NARROW.addEventListener("change", () => state.view === "plots" && showPlots());
}

async function open() {
  byId("title").textContent =
    head.name +
    ": " +
    (runs.length < 4 && new Set(runs.map((run) => run.method)).size === runs.length
      ? runs.map((run) => run.method).join(" and ")
      : plural(runs.length, "run"));
  byId("about").textContent =
    plural(head.count, "question") +
    ", " +
    plural(runs.length, "run") +
    ". This page is one file and asks the network for nothing.";
  byId("run-b").closest("label").hidden = runs.length < 2;
  byId("notes").replaceChildren(...head.notes.map((text) => el("p", { class: "note", text })));
  showResults();
  prepare(await unpack("questions"));
  wire();
  await apply();
}

open().catch((error) =>
  byId("notes").append(
    el("p", {
      class: "note",
      role: "alert",
      text: "This page is damaged or not whole (" + error.message + "); write it again.",
    }),
  ),
);
