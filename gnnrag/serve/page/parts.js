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

/** Open a passage in a dialog, its sentence marked and in view. */
export async function openPassage(id, sentence = "") {
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
  const [before, marked, after] = found.parts;
  const mark = marked ? el("mark", { tabindex: "-1" }, marked) : null;
  const step = (name, words) =>
    found[name] ? el("button", { type: "button", onclick: () => openPassage(found[name]) }, words) : null;
  dialog.replaceChildren(
    close,
    el("h2", { id: "passage-title" }, found.title || found.id),
    el("p", { class: "soft" }, found.place),
    el("p", { class: "text" }, before, mark, after),
    el("p", { class: "row" },
      step("before", "← Passage before"), step("after", "Passage after →"),
      el("a", { href: link("graph", `?node=${encodeURIComponent(`p:${id}`)}`), onclick: () => dialog.close() }, "Show it in the graph")),
  );
  if (!dialog.open) dialog.showModal();
  if (mark) {
    mark.scrollIntoView({ block: "center" });
    mark.focus({ preventScroll: true });
  }
}
