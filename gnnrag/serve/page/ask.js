// Asking: a conversation, each round as it happens, sources that open, two methods side by side.

import { api, at, el, link, openPassage, own, say, state, streamed, under } from "./parts.js";

const HELP = {
  single: "one search, the quickest",
  bdtr: "several rounds, evidence checked",
  routed: "picks by the question",
  closed_book: "without the documents",
  ircot: "thought and search by turns",
  iter_retgen: "each draft answer searches on",
  tog: "Think-on-Graph's steps",
  gcot: "Graph-CoT's steps",
  multihop: "step by step",
  mgranrag: "evidence gathered in a graph",
  graphsearch: "texts and graph, drafted, verified",
  dotrag: "paths in the graph",
  react: "an agent",
  search_r1: "an agent, with Search-R1's tags",
  r1_searcher: "an agent, with R1-Searcher's tags",
  chg: "passages joined by names",
  bm25: "words",
  dense: "meaning",
  hybrid: "words and meaning",
  nexthop: "trained, what follows",
  gfm: "trained graph network",
  lightrag: "knowledge graph",
  hipporag2: "knowledge graph, by walks",
};
const WORDS = {
  merge: (step) => `${counted(step.new)} found for the first time`,
  chain: (step) => `what is known so far (in brackets: its place among what was found): ${step.text}`,
  cut: (step) => `${counted(step.kept?.length ?? 0)} kept, ${step.selected?.length ?? 0} of them checked as evidence`,
  evidence: (step) => `${counted(step.context?.length ?? 0)} ${step.context?.length === 1 ? "goes" : "go"} to the reader`,
  answer: () => "the reader has answered",
};
const counted = (count) => `${count} ${count === 1 ? "passage" : "passages"}`;
let turns = []; // questions with answers, of one conversation

export function startAsking() {
  at("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    ask(at("question").value.trim());
  });
  at("question").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    at("composer").requestSubmit();
  });
  at("compare").addEventListener("change", () => {
    at("second").hidden = !at("compare").checked;
    if (at("compare").checked) at("method-2").value = at("method").value === "single" ? "bdtr" : "single";
  });
  for (const id of ["method", "retriever", "filter", "compare"]) at(id).addEventListener("change", how);
  at("how").open = !matchMedia("(max-width: 700px)").matches;
  at("anew").addEventListener("click", anew);
  document.addEventListener("parts", parts);
}

/** Offer what the index can be asked by, keeping what was chosen. */
function parts() {
  const { methods = [], retrievers = [], method, retriever } = own();
  for (const [id, names, usual] of [["method", methods, method], ["retriever", retrievers, retriever]]) {
    for (const select of [at(id), at(`${id}-2`)]) {
      const chosen = names.includes(select.value) ? select.value : usual;
      select.replaceChildren(...names.map((name) => el("option", { value: name, selected: name === chosen }, HELP[name] ? `${name}: ${HELP[name]}` : name)));
    }
  }
  if (at("talk").dataset.index !== state.index) anew();
  how();
}

function how() {
  at("how-summary").textContent = `How: ${at("method").value} on ${at("retriever").value}${at("filter").value.trim() ? ", filtered" : ""}${at("compare").checked ? ", compared" : ""}`;
}

function anew() {
  turns = [];
  at("talk").dataset.index = state.index;
  at("anew").hidden = true;
  at("question-label").textContent = "Your question";
  const { passages = 0, rights = [] } = own();
  const hint = passages
    ? "The answer comes with the sentences it was read from. A question may take several steps: where was the director of a film born?"
    : rights.includes("write") ? "There are no documents yet." : "There are no documents yet; somebody with the right to has to add some.";
  at("talk").replaceChildren(
    el("div", { class: "welcome" },
      el("h2", {}, passages ? "Ask the documents" : "Nothing to ask yet"),
      el("p", {}, hint),
      passages ? null : rights.includes("write") ? el("p", {}, el("a", { href: link("documents") }, "Add documents")) : null),
  );
  if (passages) suggest().catch(() => {});
}

/** Name a few things that the documents speak of. */
async function suggest() {
  const { names } = await api(under("graph"));
  const rows = names.slice(0, 8).map((one) => el("a", { href: link("graph", `?node=${encodeURIComponent(one.id)}`) }, one.label));
  if (rows.length) at("talk").querySelector(".welcome")?.append(el("p", {}, "They speak of "), el("p", { class: "names" }, ...rows));
}

async function ask(question) {
  if (!question) return;
  at("talk").querySelector(".welcome")?.remove();
  at("question").value = "";
  const choices = [[at("method").value, at("retriever").value]];
  if (at("compare").checked) choices.push([at("method-2").value, at("retriever-2").value]);
  const answers = choices.map(([method, retriever]) => card(method, retriever));
  const turn = el("article", { class: "turn" }, el("h2", { class: "asked" }, question),
    el("div", { class: answers.length > 1 ? "sides two" : "sides" }, ...answers.map((one) => one.root)));
  at("talk").append(turn);
  turn.scrollIntoView({ block: "start" });
  say("Asked. Searching.");
  const history = turns.slice(-20);
  const told = await Promise.all(answers.map((one, i) => run(one, question, history, ...choices[i])));
  turn.scrollIntoView({ block: "start" });
  turns.push({ question, answer: told[0]?.text ?? "" });
  at("anew").hidden = false;
  at("question-label").textContent = "Follow up: he, she or it is what went before";
  if (answers.length > 1 && told.every(Boolean)) turn.querySelector(".sides").before(verdict(told, choices));
}

/** Make the card of one answer to come. */
function card(method, retriever) {
  const found = {
    text: el("p", { class: "answer waiting" }, "Searching …"),
    rounds: el("ol", { class: "rounds" }),
    sources: el("div"),
    stop: el("button", { type: "button" }, "Stop"),
    summary: el("summary", {}, "What is happening"),
  };
  found.details = el("details", { open: true }, found.summary, found.rounds);
  const how = el("h3", { class: "how" }, `${method} on ${retriever}`);
  found.root = el("section", { class: "card" },
    el("div", { class: "head" }, how, found.stop), found.text, found.sources, found.details);
  return found;
}

async function run(one, question, history, method, retriever) {
  const control = new AbortController();
  one.stop.addEventListener("click", () => control.abort());
  try {
    for await (const [name, data] of streamed(under("ask"), { question, history, method, retriever, filter: at("filter").value.trim() || null, stream: true }, control.signal)) {
      if (name === "step") step(one, data);
      if (name === "error") throw new Error(data.message);
      if (name === "answer") return finish(one, data, question);
    }
    throw new Error("the server ended without an answer");
  } catch (problem) {
    const text = problem.name === "AbortError" ? "Stopped." : `No answer: ${problem.message}`;
    one.text.className = "answer problem";
    one.text.textContent = text;
    say(text);
    return null;
  } finally {
    one.stop.remove();
  }
}

function step(one, data) {
  if (data.event !== "query") {
    const words = WORDS[data.event]?.(data);
    if (words) one.rounds.lastElementChild?.append(el("p", { class: "soft" }, words));
    return;
  }
  const found = data.found.map((hit) =>
    el("li", {}, el("button", { type: "button", class: "plain", onclick: () => openPassage(hit.passage, data.text) }, hit.title || hit.passage),
      el("span", { class: "soft" }, ` ${hit.text.slice(0, 90)}…`)));
  const from = { question: "the question", fast: "a quick thought", slow: "a second thought" }[data.origin] ?? data.origin;
  one.rounds.append(el("li", {},
    el("p", {}, el("b", {}, `Round ${data.round + 1}`), ` searched for “${data.text}”`, el("span", { class: "soft" }, ` (${from})`)),
    found.length ? el("details", {}, el("summary", {}, `best of what was found: ${data.found[0].title || data.found[0].passage}`), el("ul", {}, ...found)) : null));
  say(`Round ${data.round + 1}: searched for ${data.text}`);
}

function finish(one, data, question) {
  one.details.open = false;
  const searches = data.usage.retriever_calls;
  const seconds = data.seconds < 1 ? `${Math.round(data.seconds * 1000)} ms` : `${data.seconds.toFixed(1)} s`;
  one.summary.textContent = `How it was found: ${searches} ${searches === 1 ? "search" : "searches"}, ${data.usage.llm_calls} calls of a model, ${seconds}`;
  if (data.error) {
    one.text.className = "answer problem";
    one.text.textContent = `No answer: ${data.error}`;
    say(one.text.textContent);
    return null;
  }
  const text = data.marked || "The passages do not say.";
  one.text.className = data.text ? "answer" : "answer waiting";
  const sources = new Map(); // by number: the sentences that were read there
  for (const cited of data.citations) sources.set(cited.number, [...(sources.get(cited.number) ?? []), cited]);
  const numbers = [...sources.keys()].sort((a, b) => a - b).map((number) => sources.get(number)[0]);
  const marks = new Map(data.citations.map((cited) => [cited.at, cited])); // by its place; of several the one before it
  const mark = (cited) =>
    el("button", { type: "button", class: "cite", "aria-label": `Source ${cited.number}: ${cited.title || cited.place}`,
      onclick: () => openPassage(cited.passage, cited.sentence) }, `[${cited.number}]`);
  const inline = [];
  let done = 0;
  for (const [place, cited] of [...marks].sort(([a], [b]) => a - b)) {
    const at = [...text].slice(0, place).join("").length; // JavaScript counts in UTF-16
    inline.push(text.slice(done, at), mark(cited));
    done = at + `[${cited.number}]`.length;
  }
  one.text.replaceChildren(...inline, text.slice(done));
  const rows = numbers.map((cited) => el("li", { value: cited.number },
    el("button", { type: "button", class: "plain", onclick: () => openPassage(cited.passage, cited.sentence) }, cited.title || cited.place),
    el("span", { class: "soft" }, cited.title && cited.place !== cited.passage ? ` ${cited.place}` : ""),
    ...sources.get(cited.number).map((said) => el("p", { class: "quote" }, said.sentence, said.supported ? null : el("span", { class: "soft" }, " The passage does not bear this out.")))));
  if (data.question !== question) one.sources.append(el("p", { class: "soft" }, `Asked as: ${data.question}`));
  if (data.text && !data.usage.llm_calls) one.sources.append(el("p", { class: "soft" }, `Read without a language model${data.confidence ? `, sure to ${Math.round(100 * data.confidence)}%` : ""}: see whether the sources bear it out.`));
  if (rows.length) one.sources.append(el("h4", {}, "Sources"), el("ol", { class: "sources" }, ...rows));
  const shown = numbers.map((cited) => cited.passage);
  const ids = shown.length ? shown : data.context.slice(0, 4);
  const passages = encodeURIComponent(ids.map(encodeURIComponent).join(",")); // twice: an id may have a comma itself
  if (passages) one.sources.append(el("p", {}, el("a", { href: link("graph", `?passages=${passages}&question=${encodeURIComponent(`${data.question} ${data.text}`)}`) }, "Show its path in the graph")));
  say(`Answer: ${text}`);
  return data;
}

function verdict([one, other], [first, second]) {
  const same = one.text.trim().toLowerCase() === other.text.trim().toLowerCase();
  const mine = new Set(one.context);
  const both = other.context.filter((id) => mine.has(id)).length;
  const name = ([method, retriever]) => `${method} on ${retriever}`;
  return el("p", { class: "verdict" }, `${same ? "The same answer." : "Different answers."} ${both} passages were read by both, ` +
    `${one.context.length - both} by ${name(first)} alone, ${other.context.length - both} by ${name(second)} alone.`);
}
