// Small tools. Every string of the data goes in as text: nothing is ever parsed as HTML.
const head = JSON.parse(document.getElementById("data").textContent);
const runs = head.runs;
const MARKS = ["circle", "square", "triangle", "diamond", "cross", "ring"];

function byId(id) {
  return document.getElementById(id);
}

function fillIn(element, attributes, children) {
  for (const name in attributes || {}) {
    const value = attributes[name];
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") element.textContent = value;
    else if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children) {
    if (child === null || child === undefined) continue;
    element.append(child);
  }
  return element;
}

function el(name, attributes, ...children) {
  return fillIn(document.createElement(name), attributes, children);
}

function draw(name, attributes, ...children) {
  return fillIn(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function fixed(value, digits) {
  return typeof value === "number" ? value.toFixed(digits) : "–";
}

function signed(value, digits) {
  return (value > 0 ? "+" : value < 0 ? "−" : "±") + Math.abs(value).toFixed(digits);
}

function plural(count, word, many) {
  return count.toLocaleString("en") + " " + (count === 1 ? word : many || word + "s");
}

function short(text, length) {
  return text.length <= length ? text : text.slice(0, length - 1).trimEnd() + "…";
}

function table(caption, headings, rows) {
  // Rows are lists whose first item heads the row.
  return el(
    "table",
    { class: "plain" },
    el("caption", { text: caption }),
    el("thead", {}, el("tr", {}, ...headings.map((text) => el("th", { scope: "col", text })))),
    el(
      "tbody",
      {},
      ...rows.map((row) =>
        el("tr", {}, ...row.map((cell, i) => el(i ? "td" : "th", i ? { text: cell } : { scope: "row", text: cell }))),
      ),
    ),
  );
}

function region(label, ...children) {
  return el("div", { class: "wide", role: "region", "aria-label": label, tabindex: "0" }, ...children);
}

function options(select, rows, chosen) {
  select.replaceChildren(...rows.map(([value, text]) => el("option", { value, text })));
  if (chosen !== undefined) select.value = chosen;
}

// ------------------------------------------------------------------------------------------------ packed blocks
const unpacked = new Map();

async function unpack(name) {
  if (!unpacked.has(name)) {
    unpacked.set(
      name,
      (async () => {
        const source = document.querySelector('script[data-block="' + name + '"]');
        const bytes = Uint8Array.from(atob(source.textContent), (letter) => letter.charCodeAt(0));
        source.remove();
        return JSON.parse(new TextDecoder().decode(await decompressed(bytes)));
      })(),
    );
    document.body.dataset.unpacked = unpacked.size;
  }
  return unpacked.get(name);
}

async function decompressed(bytes) {
  if (typeof DecompressionStream === "function") {
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }
  return gunzip(bytes);
}

async function loadStory(run, place) {
  const rows = await unpack("story-" + run + "-" + Math.floor(place / head.stories_in_block));
  return rows[place % head.stories_in_block];
}

const passageTable = new Map();

async function loadPassages(numbers) {
  const size = head.passages_in_block;
  const blocks = [...new Set([...numbers].map((number) => Math.floor(number / size)))];
  await Promise.all(
    blocks.map(async (at) => {
      const rows = await unpack("passages-" + at);
      rows.forEach((row, i) => passageTable.set(at * size + i, { id: row[0], title: row[1] || row[0], text: row[2] }));
    }),
  );
}

function passage(number) {
  return passageTable.get(number) || { id: "?", title: "unknown passage", text: "" };
}
