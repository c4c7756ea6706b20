// Asking: a conversation, each round as it happens, sources that open, two methods side by side.

import { api, at, drawText, el, link, openPassage, own, rowOf, say, state, streamed, table, under } from "./parts.js";
import { asText, drop, keep, kept, save } from "./talks.js";

const USUAL = ["single", "bdtr", "routed", "multihop"];
const METHODS = {
  single: "One search",
  bdtr: "Several searches",
  routed: "As the question needs",
  multihop: "Step by step",
  closed_book: "Without the documents",
  ircot: "Thought and search by turns (IRCoT)",
  iter_retgen: "Each draft searches on (Iter-RetGen)",
  tog: "A walk in the graph (Think-on-Graph)",
  gcot: "Steps in the graph (Graph-CoT)",
  mgranrag: "Evidence gathered in a graph (mGranRAG)",
  graphsearch: "Texts and graph, verified (GraphSearch)",
  dotrag: "Paths in the graph (DoT-RAG)",
  react: "An agent (ReAct)",
  search_r1: "An agent (Search-R1)",
  r1_searcher: "An agent (R1-Searcher)",
};
const RETRIEVERS = {
  chg: "Names that passages share",
  bm25: "Words",
  dense: "Meaning",
  hybrid: "Words and meaning",
  walk: "Walks along references and names",
  nexthop: "What follows, trained",
  gfm: "A trained graph network (GFM-RAG)",
  lightrag: "A knowledge graph (LightRAG)",
  hipporag2: "Walks in a knowledge graph (HippoRAG 2)",
};
const worded = (method, retriever) => `${METHODS[method] ?? method} · ${RETRIEVERS[retriever] ?? retriever}`;
const WORDS = {
  merge: (step) => `${counted(step.new)} found for the first time`,
  chain: (step) => `what is known so far: ${step.text.replace(/\[(\d+)\]/g, "(no. $1 found)")}`,
  cut: (step) => `${counted(step.kept?.length ?? 0)} kept, ${step.selected?.length ?? 0} of them checked as evidence`,
  evidence: (step) => `${counted(step.context?.length ?? 0)} ${step.context?.length === 1 ? "goes" : "go"} to the reader`,
  answer: () => "the reader has answered",
};
const counted = (count) => `${count} ${count === 1 ? "passage" : "passages"}`;
let talk = { id: "", turns: [] };

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
  for (const id of ["method", "retriever", "style", "filter", "compare"]) at(id).addEventListener("change", how);
  at("how").open = false;
  at("anew").addEventListener("click", () => begin());
  at("save").addEventListener("click", () => save(talk));
  document.addEventListener("parts", parts);
}

/** Offer what the index can be asked by, keeping what was chosen. */
function parts() {
  const { methods = [], retrievers = [], method, retriever } = own();
  for (const [id, names, words, usual] of [["method", methods, METHODS, method], ["retriever", retrievers, RETRIEVERS, retriever]]) {
    for (const select of [at(id), at(`${id}-2`)]) {
      if (select.dataset.names === names.join()) continue;
      select.dataset.names = names.join();
      const chosen = names.includes(select.value) ? select.value : usual;
      const option = (name) => el("option", { value: name, title: name, selected: name === chosen }, words[name] ?? name);
      const others = id === "method" ? names.filter((name) => !USUAL.includes(name)) : [];
      select.replaceChildren(...names.filter((name) => !others.includes(name)).map(option),
        ...(others.length ? [el("optgroup", { label: "Methods of papers" }, ...others.map(option))] : []));
    }
  }
  if (at("talk").dataset.index !== state.index) begin(kept()[0]);
  else if (!talk.turns.length) welcome();
  how();
}

function how() {
  const more = [at("style").value && at("style").selectedOptions[0].textContent.toLowerCase(), at("filter").value.trim() && "filtered", at("compare").checked && "compared"];
  at("how-summary").textContent = ["How: ", [worded(at("method").value, at("retriever").value), ...more.filter(Boolean)].join(", ")].join("");
}

/** Begin a conversation, or take up one that was kept. */
function begin(before = { id: String(Date.now()), turns: [] }) {
  talk = before;
  at("talk").dataset.index = state.index;
  at("talk").replaceChildren();
  for (const { question, answers } of talk.turns) {
    const cards = answers.map(({ method, retriever, data }) => {
      const one = card(method, retriever);
      one.stop.remove();
      finish(one, data, question);
      return one;
    });
    place(question, cards, answers.map((one) => one.data));
  }
  follow();
  if (!talk.turns.length) welcome();
  else at("talk").lastElementChild.scrollIntoView({ block: "start" });
}

function follow() {
  at("anew").hidden = at("save").hidden = !talk.turns.length;
  at("question-label").textContent = talk.turns.length ? "Follow up" : "Your question";
}

/** Say what may be asked, or that documents are on their way; again as they arrive. */
function welcome() {
  const { passages = 0, rights = [], jobs = 0, generation } = own();
  const now = [state.index, generation, jobs].join();
  if (at("talk").querySelector(".welcome")?.dataset.now === now) return;
  const hint = passages
    ? "The answer comes with the sentences it was read from. A question may take several steps: where was the director of a film born?"
    : jobs ? "They can be asked as soon as they are indexed."
      : rights.includes("write") ? "There are no documents yet." : "There are no documents yet; somebody with the right to has to add some.";
  const earlier = kept();
  const old = el("ul", { class: "earlier" }, ...earlier.map((one) => el("li", {},
    el("button", { type: "button", class: "plain", onclick: () => begin(one) }, one.turns[0].question),
    el("button", { type: "button", "aria-label": `Delete the conversation: ${one.turns[0].question}`, onclick: (event) => {
      drop(one);
      event.target.closest("li").remove();
    } }, "Delete"))));
  at("talk").replaceChildren(
    el("div", { class: "welcome", "data-now": now },
      el("h2", {}, passages ? "Ask the documents" : jobs ? indexing(jobs) : "Nothing to ask yet"),
      el("p", {}, hint),
      passages && jobs ? el("p", { class: "soft" }, `${indexing(jobs)}.`) : null,
      passages || !rights.includes("write") ? null : el("p", {}, el("a", { href: link("documents") }, "Add documents")),
      el("div", { id: "suggested" }),
      earlier.length ? el("details", {}, el("summary", {}, `Earlier conversations in this browser (${earlier.length})`), old) : null),
  );
  if (passages) suggest().catch(() => {});
}

export const indexing = (jobs) => `${jobs} ${jobs === 1 ? "file is" : "files are"} being indexed`;

/** Offer questions about what the documents name, and about their sections. */
async function suggest() {
  const [{ names }, { documents }] = await Promise.all([api(under("graph")), api(under("documents?limit=60"))]);
  const counts = {};
  const varied = names.filter(({ type }) => type !== "passage" && (counts[type] = (counts[type] ?? 0) + 1) < 3).slice(0, 4);
  const asked = varied.map(({ label, type }) => (type === "person" ? `Who is ${label}?` : `What is said about ${label}?`));
  const sections = documents.map(({ title }) => title.split(" > "))
    .filter((path) => path.length > 1 && path.at(-1).length < 60 && path[0].toLowerCase() !== path.at(-1).toLowerCase());
  asked.push(...sections.slice(0, 3).map((path) => `What does “${path[0]}” say about ${path.at(-1).toLowerCase()}?`));
  at("suggested")?.replaceChildren(...(asked.length ? [el("p", { class: "soft" }, "From the documents:"),
    el("p", { class: "names" }, ...asked.map((question) => el("button", { type: "button", onclick: () => ask(question) }, question)))] : []));
}

function place(question, cards, told = []) {
  const turn = el("article", { class: "turn" }, el("h2", { class: "asked" }, question),
    el("div", { class: cards.length > 1 ? "sides two" : "sides" }, ...cards.map((one) => one.root)));
  at("talk").append(turn);
  if (told.length > 1 && told.every(Boolean)) turn.querySelector(".sides").before(verdict(told, cards));
  return turn;
}

async function ask(question) {
  if (!question) return;
  at("talk").querySelector(".welcome")?.remove();
  at("question").value = "";
  const choices = [[at("method").value, at("retriever").value]];
  if (at("compare").checked) choices.push([at("method-2").value, at("retriever-2").value]);
  const cards = choices.map(([method, retriever]) => card(method, retriever));
  const turn = place(question, cards);
  turn.scrollIntoView({ block: "start" });
  say("Asked. Searching.");
  const [current, index] = [talk, state.index];
  const history = talk.turns.slice(-20).map((one) => ({ question: one.question, answer: one.answers[0].data.text }));
  const told = await Promise.all(cards.map((one, i) => run(one, question, history, ...choices[i])));
  turn.scrollIntoView({ block: "start" });
  if (cards.length > 1 && told.every(Boolean)) turn.querySelector(".sides").before(verdict(told, cards));
  const answers = told.map((data, i) => ({ method: choices[i][0], retriever: choices[i][1], data })).filter((one) => one.data);
  if (!answers.length || index !== state.index) return;
  current.turns.push({ question, answers });
  keep(current);
  follow();
}

/** Make the card of one answer to come. */
function card(method, retriever) {
  const one = {
    method, retriever,
    text: el("div", { class: "answer waiting" }, "Searching …"),
    rounds: el("ol", { class: "rounds" }),
    notes: el("div"),
    sources: el("aside", { "aria-label": "Sources", hidden: true }),
    stop: el("button", { type: "button" }, "Stop"),
    summary: el("summary", {}, "What is happening"),
  };
  one.details = el("details", { open: true }, one.summary, one.rounds);
  const how = el("h3", { class: "how" }, worded(method, retriever), el("span", { class: "soft" }, ` ${method} on ${retriever}`));
  one.root = el("section", { class: "card" },
    el("div", { class: "main" }, el("div", { class: "head" }, how, one.stop), one.text, one.notes, one.details), one.sources);
  return one;
}

async function run(one, question, history, method, retriever) {
  const control = new AbortController();
  one.stop.addEventListener("click", () => control.abort());
  try {
    for await (const [name, data] of streamed(under("ask"), { question, history, method, retriever, style: at("style").value || null, filter: at("filter").value.trim() || null, stream: true }, control.signal)) {
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
    el("li", {}, el("button", { type: "button", class: "plain", onclick: () => openPassage(hit.passage, { sentence: data.text }) }, hit.title || hit.passage),
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
  const text = data.marked || "No answer was found in the documents.";
  const isLarge = data.form === "stated" && text.length <= 60 && !text.includes("\n"); // a quotation looks no surer than it is
  one.text.className = !data.text ? "answer waiting" : isLarge ? "answer" : "answer long";
  const open = (cited) => openPassage(cited.passage, cited);
  const mark = (cited) =>
    el("button", { type: "button", class: "cite", "aria-label": `Source ${cited.number}: ${cited.title || cited.place}`, onclick: () => open(cited) }, `[${cited.number}]`);
  const characters = [...text]; // the places of marks count code points
  const places = new Map(data.citations.map((cited, i) => [cited.at, [cited, i]])); // of several the one before it
  for (const [place, [cited, i]] of [...places].sort(([x], [y]) => y - x)) characters.splice(place, `[${cited.number}]`.length, `\u0004${i}\u0005`);
  // A full stop never stands alone on a line.
  const inline = (words) => words.split(/\u0004(\d+)\u0005([.,;:!?]*)/).flatMap((part, i, parts) =>
    (i % 3 === 0 ? [part] : i % 3 === 1 ? [el("span", { class: "whole" }, mark(data.citations[part]), parts[i + 1])] : []));
  one.text.replaceChildren(...drawText(characters.join(""), inline));
  const sources = []; // the citations of each, by number
  for (const cited of data.citations) (sources[cited.number] ??= []).push(cited);
  const note = (words) => one.notes.append(el("p", { class: "soft" }, words));
  if (data.question !== question) note(`Asked as: ${data.question}`);
  if (data.form === "quoted") note("No answer is certain: these are the sentences nearest to the question.");
  else if (data.text && !data.usage.llm_calls) note(`Read without a language model${data.confidence ? `, sure to ${Math.round(100 * data.confidence)}%` : ""}: see whether the sources bear it out.`);
  const rows = sources.flat().map((cited) => [cited, rowOf(cited.sentence)]).filter(([, row]) => row);
  if (rows.length && !one.text.querySelector("table")) one.notes.append(table(rows.map(([, row]) => new Map([...row].map(([name, value]) => [name, [value]]))), rows.map(([cited]) => mark(cited))));
  const quotes = (group) => group.flatMap((cited) => [rowOf(cited.sentence) ? null : el("p", { class: "quote" }, cited.sentence), cited.supported ? null : el("p", { class: "soft" }, "The passage does not bear this out.")]);
  one.sources.replaceChildren(el("h4", {}, "Sources"), el("ol", { class: "sources" }, ...sources.filter(Boolean).map((group) => el("li", { value: group[0].number },
    el("button", { type: "button", class: "plain", onclick: () => open(group[0]) }, group[0].title || group[0].place),
    el("span", { class: "soft" }, group[0].title && group[0].place !== group[0].passage ? ` ${group[0].place}` : ""), ...quotes(group)))));
  one.sources.hidden = !sources.length;
  one.root.classList.toggle("beside", sources.length > 0);
  const actions = el("p", { class: "row" });
  if (data.text && navigator.clipboard) actions.append(el("button", { type: "button", onclick: async (event) => {
    await navigator.clipboard.writeText(asText(data));
    event.target.textContent = "Copied";
  } }, "Copy"));
  one.notes.append(actions);
  if (data.text) path(actions, data).catch(() => {});
  say(`Answer: ${text}`);
  return data;
}

/** Offer the path of an answer where names join what was cited to other passages that were read. */
async function path(actions, data) {
  const cited = new Set(data.citations.map((one) => one.passage));
  const passages = [...new Set([...cited, ...data.context.slice(0, 4)])].slice(0, 8);
  const question = `${data.question} ${data.text}`.slice(0, 4000);
  const { nodes, edges } = await api(under("graph"), { method: "POST", body: { passages, question } });
  // Headings join parts of one document, which says nothing.
  const paths = nodes.filter(({ type, label }) => type === "passage" && label.includes(" > ")).map(({ label }) => label);
  const headings = new Set(paths.flatMap((path) => [path, ...path.split(" > ")]));
  const ends = new Map();
  for (const { source, target } of edges) {
    const [name, passage] = source.startsWith("e:") ? [source, target] : [target, source];
    if (passage.startsWith("p:")) ends.set(name, (ends.get(name) ?? new Set()).add(passage.slice(2)));
  }
  const asked = data.question.toLowerCase();
  const isAsked = (name) => asked.includes(name.slice(2).toLowerCase());
  const wanted = (id) => [...ends.keys()].filter((name) => isAsked(name) && ends.get(name).has(id));
  // From a passage that has what is asked of and no citation to one that is cited, by a name that both have.
  const leads = (from, to) => cited.has(from) || wanted(from).some((name) => !ends.get(name).has(to));
  const bridges = [...ends].filter(([name]) => !isAsked(name) && !headings.has(name.slice(2))).map(([name, joined]) => ({ name: name.slice(2), joined: [...joined] }))
    .filter(({ joined }) => joined.some((to) => cited.has(to) && joined.some((from) => from !== to && leads(from, to))));
  if (!bridges.length) return;
  const ids = [...new Set([...cited, ...bridges.flatMap(({ joined }) => joined)])];
  const list = encodeURIComponent(ids.map(encodeURIComponent).join(",")); // twice: an id may have a comma itself
  actions.append(el("a", { href: link("graph", `?passages=${list}&question=${encodeURIComponent(question)}`) },
    `Show its path: joined by ${bridges.slice(0, 3).map((one) => one.name).join(", ")}`));
}

function verdict([one, other], [first, second]) {
  const same = one.text.trim().toLowerCase() === other.text.trim().toLowerCase();
  const mine = new Set(one.context);
  const both = other.context.filter((id) => mine.has(id)).length;
  const name = ({ method, retriever }) => `${method} on ${retriever}`;
  return el("p", { class: "verdict" }, `${same ? "The same answer." : "Different answers."} ${both} passages were read by both, ` +
    `${one.context.length - both} by ${name(first)} alone, ${other.context.length - both} by ${name(second)} alone.`);
}
