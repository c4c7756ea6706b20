// The graph view as one file: what it would ask a server is answered from what lies in it.

import { showGraph, startGraph } from "./graph.js";
import { at, state } from "./parts.js";

const inside = JSON.parse(at("data").textContent);

function part(ids) {
  const has = new Set(ids);
  return { nodes: inside.nodes.filter((node) => has.has(node.id)), edges: inside.edges.filter((edge) => has.has(edge.source) && has.has(edge.target)) };
}

state.answer = async (path) => {
  const [, where, query] = path.match(/\/\/([^?]*)\??(.*)/);
  const asked = new URLSearchParams(query);
  if (where.startsWith("passages/")) return inside.passages[decodeURIComponent(where.slice("passages/".length))];
  if (asked.has("node")) {
    const id = asked.get("node");
    return part([id, ...inside.edges.filter((edge) => edge.source === id || edge.target === id).flatMap((edge) => [edge.source, edge.target])]);
  }
  const text = asked.get("find")?.toLowerCase();
  return text === undefined ? part(inside.path) : { names: inside.nodes.filter((node) => node.label.toLowerCase().includes(text)).slice(0, 18) };
};

const show = () => showGraph(new URLSearchParams(location.hash.split("?")[1] ?? inside.start));
startGraph();
addEventListener("hashchange", show);
show();
