// What the views share: elements made of text alone, the API, the passage that a citation opens.

export const at = (id) => document.getElementById(id);

/** Make an element; what others wrote comes in as text, never as markup. */
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** Tell a screen reader. */
export const say = (text) => {
  at("said").textContent = text;
};

export const state = { index: "", indexes: [] };
export const own = () => state.indexes.find((one) => one.name === state.index) ?? {};
export const link = (view, rest = "") => `#/${encodeURIComponent(state.index)}/${view}${rest}`;
export const under = (path) => `/api/indexes/${encodeURIComponent(state.index)}/${path}`;

/** Ask the server. Throws an Error that says what went wrong, in words; asks for a token where one is needed. */
export async function api(path, { method = "GET", body, file, signal, raw = false } = {}) {
  for (;;) {
    const token = sessionStorage.getItem("token");
    const headers = token ? { authorization: `Bearer ${token}` } : {};
    if (body) headers["content-type"] = "application/json";
    const data = body ? JSON.stringify(body) : file;
    const response = await fetch(path, { method, headers, body: data, signal });
    if (response.status === 401) {
      await askToken(Boolean(token));
      continue;
    }
    if (!response.ok) {
      const told = await response.json().catch(() => ({}));
      throw new Error(told.error?.message ?? `the server answered ${response.status}`);
    }
    return raw ? response : response.json();
  }
}

function askToken(wasWrong) {
  const dialog = at("token");
  if (wasWrong) at("token-problem").textContent = "The server does not know this token. Try again.";
  if (!dialog.open) dialog.showModal();
  return new Promise((done) => {
    const close = () => {
      sessionStorage.setItem("token", at("token-text").value.trim());
      done();
    };
    dialog.addEventListener("close", close, { once: true });
  });
}

/** Yield the server-sent events of a POST: [name, data]. */
export async function* streamed(path, body, signal) {
  const response = await api(path, { method: "POST", body, signal, raw: true });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const fields = Object.fromEntries(block.split("\n").map((line) => [line.split(": ", 1)[0], line.slice(line.indexOf(": ") + 2)]));
      if (fields.event) yield [fields.event, JSON.parse(fields.data)];
    }
  }
}

/** Read `name: value; name: value`, as the row of a table is written in a passage; null where it is none. */
export function rowOf(text) {
  const pairs = text.trim().split(/;\s+/).map((part) => part.match(/^([^:;]{1,60}): (.+)$/));
  return pairs.length > 1 && pairs.every(Boolean) ? new Map(pairs.map(([, name, value]) => [name, value])) : null;
}

/** Draw rows (cells by column, or null) as one table; `before` are cells that come first, one for each row. */
export function table(rows, before = [], marked = new Set()) {
  const columns = [...new Set([...rows].sort((a, b) => b.size - a.size).flatMap((row) => [...row.keys()]))];
  const cells = (row) => columns.map((name) => el("td", {}, ...(row.get(name) ?? [])));
  return el("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Table" }, el("table", {},
    el("thead", {}, el("tr", {}, before.length ? el("td") : null, ...columns.map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", {}, ...rows.map((row, i) => el("tr", { class: marked.has(i) ? "marked" : null }, before[i] ? el("td", {}, before[i]) : null, ...cells(row))))));
}

const KINDS = [["pipes", /^\s*\|.*\|\s*$/], ["ul", /^\s*[-*•]\s+(?=\S)/], ["ol", /^\s*\d{1,3}[.)]\s+(?=\S)/], ["p", /\S/]];

/** Draw a text: paragraphs, lists and tables; `inline` makes the nodes of a piece of it. */
export function drawText(text, inline = (words) => [words]) {
  const blocks = [];
  for (const line of text.split("\n")) {
    const kind = rowOf(line) ? "rows" : KINDS.find(([, pattern]) => pattern.test(line))?.[0] ?? "";
    if (blocks.at(-1)?.kind === kind) blocks.at(-1).lines.push(line);
    else blocks.push({ kind, lines: [line] });
  }
  return blocks.filter(({ kind }) => kind).map(({ kind, lines }) => {
    if (kind === "p") return el("p", {}, ...inline(lines.join("\n")));
    if (kind === "rows") {
      const marked = new Set(lines.map((line, i) => (line.includes("\u0002") ? i : -1)));
      return table(lines.map((line) => new Map([...rowOf(line.replace(/[\u0002\u0003]/g, ""))].map(([name, value]) => [name, inline(value)]))), [], marked);
    }
    if (kind === "pipes") {
      const [head, ...rows] = lines.filter((line) => !/^[\s|:-]+$/.test(line)).map((line) => line.trim().slice(1, -1).split("|").map((cell) => cell.trim()));
      return table(rows.map((row) => new Map(head.map((name, i) => [name, inline(row[i] ?? "")]))));
    }
    const start = parseInt(lines[0], 10) || 1;
    return el(kind, kind === "ol" ? { start } : {}, ...lines.map((line) => el("li", {}, ...inline(line.replace(/^\s*(?:[-*•]|\d{1,3}[.)])\s+/, "")))));
  });
}

/** Open a passage in a dialog, what a citation says marked and in view: its range in the text, else its sentence. */
export async function openPassage(id, { sentence = "", start, end } = {}) {
  const dialog = at("passage");
  const close = el("button", { type: "button", class: "close", onclick: () => dialog.close() }, "Close");
  let found;
  try {
    found = await api(under(`passages/${encodeURIComponent(id)}?sentence=${encodeURIComponent(sentence)}`));
  } catch (problem) {
    dialog.replaceChildren(close, el("h2", { id: "passage-title" }, "Not there"), el("p", {}, problem.message));
    if (!dialog.open) dialog.showModal();
    return;
  }
  const characters = [...found.parts.join("")]; // the server counts code points
  const [before, marked, after] = end > start
    ? [characters.slice(0, start), characters.slice(start, end), characters.slice(end)].map((part) => part.join(""))
    : found.parts;
  let isOpen = false;
  const inline = (words) => words.split(/([\u0002\u0003])/).flatMap((part) => {
    if (part === "\u0002" || part === "\u0003") isOpen = part === "\u0002";
    return !part || part === "\u0002" || part === "\u0003" ? [] : isOpen ? [el("mark", { tabindex: "-1" }, part)] : [part];
  });
  const text = marked ? `${before}\u0002${marked}\u0003${after}` : before + after;
  const step = (name, words) =>
    found[name] ? el("button", { type: "button", onclick: () => openPassage(found[name]) }, words) : null;
  dialog.replaceChildren(
    close,
    el("h2", { id: "passage-title" }, found.title || found.id),
    el("p", { class: "soft" }, found.place),
    el("div", { class: "text" }, ...drawText(text, inline)),
    el("p", { class: "row" },
      step("before", "← Passage before"), step("after", "Passage after →"),
      el("a", { href: link("graph", `?node=${encodeURIComponent(`p:${id}`)}`), onclick: () => dialog.close() }, "Show it in the graph")),
  );
  if (!dialog.open) dialog.showModal();
  const mark = dialog.querySelector("mark, tr.marked");
  mark?.scrollIntoView({ block: "center" });
  mark?.focus({ preventScroll: true });
}
