// The blocks of a story. `about` says which passages are gold and which were read.
const FIRST = 5,
  FEWER = 3; // hits that are shown at once, of one of few queries and of one of many

function hit(number, rank, about, extra) {
  const own = passage(number),
    isGold = about.gold.has(number);
  const line = el(
    "summary",
    {},
    el("span", { class: "rank", text: rank }),
    el("span", { class: "name", text: own.title }),
    isGold ? el("span", { class: "tag gold", text: "★ gold" }) : null,
    ...(extra || []).map(([look, text]) => el("span", { class: "tag " + look, text })),
  );
  const details = el("details", { class: "hit" + (isGold ? " gold" : "") }, line);
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) {
      details.append(
        el("p", {
          class: "passage",
          text:
            own.text ||
            (head.has_texts
              ? "(no text)"
              : "The text is not in this page: the data could not be read when it was made."),
        }),
        el("p", { class: "soft", text: own.id }),
      );
    }
  });
  return el("li", {}, details);
}

function withMore(list, rows, first) {
  // The first rows, and a button for the others; the focus goes to what it brings.
  list.append(...rows.slice(0, first));
  if (rows.length <= first) return [list];
  const more = el("button", {
    type: "button",
    class: "quiet",
    text: "Show " + (rows.length - first) + " more",
    click: () => {
      list.append(...rows.slice(first));
      more.remove();
      (rows[first].querySelector("summary") || rows[first]).focus();
    },
  });
  return [list, more];
}

function asked(text) {
  return text.length <= 220
    ? el("q", { text })
    : el("details", { class: "long" }, el("summary", { text: short(text, 140) }), el("p", { class: "passage", text }));
}

function queryBlock(block, about, stage, first) {
  const kind = KINDS[block.kind] || block.kind.replaceAll("_", " ");
  const how = [
    block.channel && block.channel !== "text" ? "channel: " + block.channel : "",
    block.retriever ? "retriever: " + block.retriever : "",
    block.filter ? "where " + block.filter : "",
    block.by ? "ranked by " + block.by : "",
  ]
    .filter(Boolean)
    .join(" · ");
  const holder = el(
    "div",
    { class: "block query" },
    el("p", { class: "asked" }, el("span", { class: "tag kind", text: kind || "query" }), asked(block.text)),
    how ? el("p", { class: "soft", text: how }) : null,
  );
  if (block.names) {
    holder.append(
      ...withMore(
        el("ol", { class: "names" }),
        block.names.map((name, i) =>
          el(
            "li",
            { tabindex: "-1" },
            el("span", { text: name }),
            ...((block.sources && block.sources[i]) || []).map((number) =>
              el("span", {
                class: "tag" + (about.gold.has(number) ? " gold" : ""),
                text: (about.gold.has(number) ? "★ " : "from ") + passage(number).title,
              }),
            ),
          ),
        ),
        first,
      ),
    );
    if (!block.names.length) holder.append(el("p", { class: "soft", text: "It brought nothing." }));
    return holder;
  }
  const isNew = new Set(block.new),
    isBeyond = new Set(block.beyond),
    rows = block.hits.map((number, i) =>
      hit(number, i + 1, about, [
        ...(isNew.has(i) && stage !== 0 ? [["new", "new"]] : []),
        ...(isBeyond.has(i) && stage !== 0 ? [["beyond", "not in the first 50 before"]] : []),
        ...(block.scores[i] === undefined ? [] : [["score", String(block.scores[i])]]),
      ]),
    );
  holder.append(
    ...(rows.length
      ? withMore(el("ol", { class: "hits" }), rows, first)
      : [el("p", { class: "soft", text: "It brought nothing." })]),
  );
  for (const [number, rank] of block.far || [])
    holder.append(
      el(
        "p",
        { class: "soft" },
        el("span", { class: "tag gold", text: "★ gold" }),
        " " + passage(number).title + " came only at rank " + rank + ".",
      ),
    );
  return holder;
}

function moved([, was, now]) {
  if (was < 0) return [["beyond", "not in the first " + -was + " before"]]; // the trace keeps no more
  if (was && now && was !== now)
    return [[now < was ? "up" : "down", (now < was ? "▲ from " : "▼ from ") + was + (now ? " to " + now : "")]];
  if (was && !now) return [["down", "was " + was]];
  if (!was && now) return [["new", "new here"]];
  return [];
}

function movesBlock(block, about) {
  const holder = framed(block);
  if (block.n === "merge") {
    const changed = block.groups.some((group) => group.rows.length);
    holder.append(
      el("p", {
        text:
          plural(block.new, "passage") +
          (block.new === 1 ? " was" : " were") +
          " new to the pool" +
          (block.groups.length ? (changed ? ":" : "; its first 10 stayed the same.") : "."),
      }),
    );
  }
  if (block.facts && block.facts.length) holder.append(facts(block.facts, "The answer"));
  for (const group of block.groups) {
    if (!group.rows.length && block.n !== "evidence") continue;
    const [name, help] = GROUPS[group.name] || [group.name, ""];
    const shows = !["read", "support"].includes(group.name);
    holder.append(
      el(
        "h6",
        {},
        el("span", { class: "group-" + group.name, text: name }),
        help ? el("span", { class: "soft", text: " " + help }) : null,
      ),
    );
    if (!group.rows.length) {
      holder.append(el("p", { class: "soft", text: "No passage." }));
      continue;
    }
    const rows = group.rows.map((row) => hit(row[0], row[2] || "–", about, shows ? moved(row) : []));
    holder.append(el("ol", { class: "hits" }, ...rows));
  }
  if (block.text) holder.append(longText(block.text, "Notes for the reader"));
  return holder;
}

function facts(rows, caption) {
  return el(
    "table",
    { class: "facts" },
    el("caption", {}, el("span", { class: "hidden", text: caption })),
    el(
      "tbody",
      {},
      ...rows.map(([name, value]) =>
        el(
          "tr",
          {},
          el("th", { scope: "row", text: String(name).replaceAll("_", " ") }),
          el("td", {}, String(value).length > 400 ? longText(String(value), short(String(value), 90)) : value),
        ),
      ),
    ),
  );
}

function longText(text, name) {
  return el("details", { class: "long" }, el("summary", { text: name }), el("p", { class: "passage", text }));
}

function framed(block) {
  const known = WORDS[block.n];
  return el(
    "div",
    { class: "block " + block.t },
    el("h5", { text: title(block) }),
    known ? el("p", { class: "help", text: known[1] }) : null,
  );
}

function blockOf(block, about, stage, first) {
  if (block.t === "query") return queryBlock(block, about, stage, first);
  if (block.t === "moves") return movesBlock(block, about);
  const holder = framed(block);
  if (block.t === "list")
    holder.append(
      block.items.length
        ? el("ol", { class: "names" }, ...block.items.map((text) => el("li", { text })))
        : el("p", { class: "soft", text: "Nothing." }),
    );
  else if (block.t === "text")
    holder.append(
      block.text.length > 500
        ? longText(block.text, short(block.text, 120))
        : el("p", { class: "passage", text: block.text || "–" }),
    );
  else
    holder.append(
      block.rows.length
        ? facts(block.rows, title(block))
        : el("p", { class: "soft", text: "Nothing more was written down." }),
    );
  return holder;
}
