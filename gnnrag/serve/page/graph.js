// The graph, walked: search, expand, filter by type, the path of an answer. A list beside the drawing says the same.

import { api, at, el, link, openPassage, say, state, under } from "./parts.js";

// A type has one colour wherever it comes up; passages are boxes, so that colour is never all there is.
const COLOURS = {
  passage: 0, person: 1, location: 2, organization: 3, organisation: 3, group: 3, film: 4, book: 4, album: 4, song: 4, work: 4, series: 4,
  award: 5, event: 5, date: 6, number: 6, nationality: 6, phrase: 7, entity: 7,
};
let cy = null;
let nodes = new Map();
let edges = new Map();
let hidden = new Set();
let path = new Set(); // of the answer that was asked about
let chosen = null;
let shownFor = null; // index and address that the drawing is of

export function startGraph() {
  at("finder").addEventListener("submit", (event) => {
    event.preventDefault();
    go(at("find").value.trim()).catch(failed);
  });
  at("clear").addEventListener("click", () => {
    forget();
    draw();
  });
  addEventListener("resize", () => setTimeout(() => { // a phone that is turned: after the drawing has heard of it
    cy?.resize();
    cy?.fit(undefined, 20);
  }, 200));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => cy?.style(style()));
}

const failed = (problem) => {
  at("drawn").textContent = problem.message;
};

export async function showGraph(query) {
  const wanted = `${state.index}?${query}`;
  if (wanted === shownFor) return;
  const isOther = !shownFor?.startsWith(`${state.index}?`); // what is drawn is of another index
  shownFor = wanted;
  try {
    if (query.get("passages")) await showPath(query);
    else if (query.get("node")) await expand(query.get("node"), true);
    else if (!nodes.size || isOther) await begin();
  } catch (problem) {
    failed(problem);
  }
}

function forget() {
  nodes = new Map();
  edges = new Map();
  path = new Set();
  chosen = null;
}

async function begin() {
  forget();
  const names = await find("");
  if (names.length) await expand(names[0].id);
  else draw();
}

/** Go to the best match of a search; the others are listed. */
async function go(text) {
  const [best] = await find(text);
  if (best) await expand(best.id, true);
}

async function find(text) {
  const { names } = await api(under(`graph?find=${encodeURIComponent(text)}`));
  const rows = names.map((one) => el("li", {}, el("button", { type: "button", onclick: () => expand(one.id, true).catch(failed) }, one.label, el("span", { class: "soft" }, ` ${one.type}`))));
  at("matches").replaceChildren(...(rows.length ? rows : [el("li", { class: "soft" }, text ? `Nothing is called so: “${text}”.` : "The graph is empty.")]));
  say(`${names.length} names found`);
  return names;
}

async function showPath(query) {
  forget();
  const ids = query.get("passages").split(",").map(decodeURIComponent);
  const found = await api(under("graph"), { method: "POST", body: { passages: ids, question: query.get("question") ?? "" } });
  add(found);
  path = new Set(nodes.keys());
  chosen = found.nodes[0]?.id ?? null;
  find("").catch(failed);
  draw(true);
}

/** Add what is around a node; `anew` draws it alone. */
async function expand(id, anew = false) {
  const found = await api(under(`graph?node=${encodeURIComponent(id)}&limit=${matchMedia("(max-width: 700px)").matches ? 12 : 20}`));
  if (anew) forget();
  const before = nodes.size;
  add(found);
  chosen = nodes.has(id) ? id : found.nodes[0].id;
  draw(anew || !before);
  say(`${nodes.size - before} more are drawn around ${nodes.get(chosen).label}`);
}

function add(found) {
  for (const node of found.nodes) nodes.set(node.id, node);
  for (const edge of found.edges) edges.set(`${edge.source}\n${edge.target}`, edge);
}

const colourOf = (type) => COLOURS[type] ?? 1 + ([...type].reduce((sum, letter) => (sum * 31 + letter.codePointAt(0)) % 997, 7) % 7);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const short = (text) => (text.length > 26 ? `${text.slice(0, 25)}…` : text);

function style() {
  const kinds = [0, 1, 2, 3, 4, 5, 6, 7].map((i) => ({ selector: `.c${i}`, style: { "background-color": css(`--c${i}`) } }));
  return [
    { selector: "node", style: { label: "data(short)", color: css("--ink"), "font-size": 12, "text-valign": "bottom", "text-margin-y": 4, "text-background-color": css("--paper"), "text-background-opacity": 0.8, "text-background-padding": 1, width: 20, height: 20, "border-width": 2, "border-color": css("--paper") } },
    ...kinds,
    { selector: ".c0", style: { shape: "round-rectangle", width: 26, height: 18 } },
    { selector: "edge", style: { width: 1.4, "line-color": css("--line"), "curve-style": "straight" } },
    { selector: ".path", style: { "border-width": 4, "border-color": css("--goldline"), "line-color": css("--goldline") } },
    { selector: "edge.path", style: { width: 4 } },
    { selector: ".chosen", style: { "border-width": 4, "border-color": css("--mark"), "font-weight": "bold" } },
  ];
}

async function draw(isNew = false) {
  at("walk").classList.toggle("empty", !nodes.size);
  types();
  beside();
  const visible = [...nodes.values()].filter((node) => !hidden.has(node.type));
  const ids = new Set(visible.map((node) => node.id));
  const joined = [...edges.values()].filter((edge) => ids.has(edge.source) && ids.has(edge.target));
  at("drawn").textContent = nodes.size ? `${visible.length} nodes, ${joined.length} edges. Press a node to see what joins it, twice to expand it.` : "";
  if (!cy) {
    const { default: cytoscape } = await import("./cytoscape.mjs");
    cy = cytoscape({ container: at("canvas"), style: style(), minZoom: 0.2, maxZoom: 3 });
    cy.on("tap", "node", (event) => choose(event.target.id()));
    cy.on("dbltap", "node", (event) => expand(event.target.id()).catch(failed));
  }
  const places = Object.fromEntries(cy.nodes().map((node) => [node.id(), { ...node.position() }]));
  const centre = places[chosen] ?? { x: 0, y: 0 };
  cy.elements().remove();
  cy.add([
    ...visible.map((node, i) => ({
      group: "nodes", data: { id: node.id, short: short(node.label) },
      classes: [`c${colourOf(node.type)}`, path.has(node.id) ? "path" : "", node.id === chosen ? "chosen" : ""].join(" "),
      // What is new begins around what was expanded, always at the same places.
      position: (!isNew && places[node.id]) || { x: centre.x + 90 * Math.cos(i * 2.4), y: centre.y + 90 * Math.sin(i * 2.4) },
    })),
    ...joined.map((edge) => ({ group: "edges", data: { source: edge.source, target: edge.target }, classes: path.has(edge.source) && path.has(edge.target) ? "path" : "" })),
  ]);
  cy.layout({ name: "cose", animate: false, randomize: false, nodeRepulsion: () => 30000, idealEdgeLength: () => 90, nodeOverlap: 20, padding: 40, numIter: 700 }).run();
  makeRoom();
  if (cy.zoom() > 1.25) {
    cy.zoom(1.25);
    cy.center();
  }
}

/** Move nodes until no label lies on another node or its label. */
function makeRoom() {
  const boxes = cy.nodes().map((node) => {
    const { x1, y1, w, h } = node.boundingBox({ includeOverlays: false });
    return { node, w, h, x: x1 + w / 2, y: y1 + h / 2, from: { x: x1 + w / 2, y: y1 + h / 2 } };
  });
  let moved = true;
  for (let round = 0; moved && round < 300; round++) {
    moved = false;
    boxes.forEach((one, i) => boxes.slice(0, i).forEach((other) => {
      const [w, h] = [(one.w + other.w) / 2 - Math.abs(one.x - other.x), (one.h + other.h) / 2 - Math.abs(one.y - other.y)];
      if (w <= 0 || h <= 0) return;
      const [axis, by] = h < w ? ["y", h / 2 + 0.5] : ["x", w / 2 + 0.5];
      const sign = one[axis] < other[axis] ? -1 : 1;
      one[axis] += sign * by;
      other[axis] -= sign * by;
      moved = true;
    }));
  }
  cy.batch(() => boxes.forEach(({ node, x, y, from }) => node.shift({ x: x - from.x, y: y - from.y })));
  cy.fit(undefined, 20);
}

function choose(id) {
  chosen = id;
  cy.nodes().removeClass("chosen");
  cy.getElementById(id).addClass("chosen");
  beside();
}

function types() {
  const counts = new Map();
  for (const node of nodes.values()) counts.set(node.type, (counts.get(node.type) ?? 0) + 1);
  const rows = [...counts].sort(([a], [b]) => (a === "passage" ? -1 : b === "passage" ? 1 : a < b ? -1 : 1)).map(([type, count]) =>
    el("label", { class: "check" },
      el("input", { type: "checkbox", checked: !hidden.has(type), onchange: (event) => {
        if (event.target.checked) hidden.delete(type);
        else hidden.add(type);
        draw();
      } }),
      el("span", { class: `dot c${colourOf(type)}${type === "passage" ? " box" : ""}`, "aria-hidden": "true" }), `${type} (${count})`));
  at("types").replaceChildren(el("legend", {}, "Show"), ...rows, path.size ? el("span", { class: "soft" }, el("span", { class: "dot ring", "aria-hidden": "true" }), " on the path") : "");
}

/** Tell of the chosen node, and list all that is drawn: for those who do not see the drawing, or have no mouse. */
function beside() {
  const node = nodes.get(chosen);
  const parts = [];
  if (node) {
    const around = [...edges.values()].filter((edge) => edge.source === chosen || edge.target === chosen);
    const rows = around.map((edge) => {
      const other = nodes.get(edge.source === chosen ? edge.target : edge.source);
      return el("li", {}, el("button", { type: "button", class: "plain", onclick: () => choose(other.id) }, other.label), other.type === "passage" ? el("span", { class: "soft" }, " passage") : null, el("p", { class: "quote" }, edge.label));
    });
    const isPassage = node.id.startsWith("p:");
    parts.push(el("h2", {}, node.label), el("p", { class: "soft" }, `${node.type}; joined to ${node.degree} ${isPassage ? "names" : "passages"}`),
      ...(node.about ? [el("p", {}, node.about)] : []),
      el("p", { class: "row" },
        el("button", { type: "button", class: "primary", onclick: () => expand(node.id).catch(failed) }, "Expand"),
        isPassage ? el("button", { type: "button", onclick: () => openPassage(node.id.slice(2)) }, "Open the passage") : null),
      el("h3", {}, "Joined to"), el("ul", { class: "joined" }, ...rows));
  }
  const others = [...nodes.values()].filter((one) => one.id !== chosen && !hidden.has(one.type));
  if (others.length) parts.push(el("details", {}, el("summary", {}, `All ${nodes.size} that are drawn`),
    el("ul", {}, ...others.map((one) => el("li", {}, el("button", { type: "button", class: "plain", onclick: () => choose(one.id) }, one.label), el("span", { class: "soft" }, ` ${one.type}${path.has(one.id) ? ", on the path" : ""}`))))));
  at("node").replaceChildren(...(parts.length ? parts : [el("p", { class: "soft" }, "Find a name to begin, or choose one of those above.")]));
}
