// The page: which index, which view, by the address after #: #/INDEX/ask, graph?node=, documents, passage/ID.

import { indexing, startAsking } from "./ask.js";
import { leaveDocuments, showDocuments, startDocuments } from "./documents.js";
import { showGraph, startGraph } from "./graph.js";
import { api, at, el, link, openPassage, own, say, state } from "./parts.js";

let timer = 0;
const VIEWS = ["ask", "graph", "documents"];

/** Read again what may be asked, and how; after documents have come or gone it is another state. */
export async function refresh() {
  state.indexes = (await api("/api/indexes")).indexes;
  const known = state.indexes.map((one) => one.name);
  if (!known.includes(state.index)) state.index = known[0] ?? "";
  at("index").replaceChildren(...known.map((name) => el("option", { value: name, selected: name === state.index }, name)));
  at("index").closest("label").hidden = known.length < 2;
  const one = own();
  at("about").textContent = !one.name
    ? "Nothing is served for you."
    : one.state !== "ready" && !one.jobs ? one.state
      : [`${one.name}: ${one.passages.toLocaleString()} passages`, one.jobs ? indexing(one.jobs) : ""].filter(Boolean).join("; ");
  document.dispatchEvent(new CustomEvent("parts"));
  clearTimeout(timer);
  timer = setTimeout(() => (document.hidden ? null : refresh().catch(failed)), one.jobs ? 1500 : 30_000);
}

async function route() {
  const [, index, view = "ask", ...rest] = location.hash.split("/");
  const [name, query = ""] = view.split("?");
  if (index && decodeURIComponent(index) !== state.index) {
    state.index = decodeURIComponent(index);
    await refresh();
  }
  const shown = VIEWS.includes(name) ? name : "ask";
  for (const one of VIEWS) {
    at(`view-${one}`).hidden = one !== shown;
    at(`tab-${one}`).href = link(one);
    if (one === shown) at(`tab-${one}`).setAttribute("aria-current", "page");
    else at(`tab-${one}`).removeAttribute("aria-current");
  }
  document.title = `${shown[0].toUpperCase()}${shown.slice(1)} · ${state.index || "gnnrag"}`;
  document.body.dataset.view = shown;
  leaveDocuments();
  if (shown === "graph") await showGraph(new URLSearchParams(query));
  if (shown === "documents") await showDocuments();
  if (name === "passage") await openPassage(decodeURIComponent(rest.join("/")));
}

async function start() {
  document.addEventListener("visibilitychange", () => (document.hidden ? null : refresh().catch(failed)));
  startAsking();
  startGraph();
  startDocuments(refresh);
  at("index").addEventListener("change", () => {
    const view = document.body.dataset.view ?? "ask";
    state.index = at("index").value;
    location.hash = link(view);
  });
  const [, index] = location.hash.split("/");
  state.index = index ? decodeURIComponent(index) : "";
  await refresh();
  window.addEventListener("hashchange", () => route().catch(failed));
  const empty = own().rights?.includes("write") && own().passages === 0;
  if (empty && !location.hash) location.hash = link("documents");
  await route();
}

const failed = (problem) => {
  at("about").textContent = problem.message;
  say(problem.message);
};

start().catch(failed);
