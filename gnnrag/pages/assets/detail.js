// One question: what is known of it, and two runs side by side.
let shown = 0; // the newest request: an older one that ends later is dropped

function passagesOf(story) {
  const numbers = new Set([...(story.read || []), ...(story.top || []), ...(story.gold || []).map((pair) => pair[0])]);
  for (const section of story.sections) {
    for (const block of section.blocks) {
      for (const number of [
        ...(block.hits || []),
        ...(block.sources || []).flat(),
        ...(block.far || []).map((pair) => pair[0]),
        ...(block.groups || []).flatMap((group) => group.rows.map((row) => row[0])),
      ])
        numbers.add(number);
    }
  }
  return numbers;
}

function stageName(stage) {
  if (stage === "start") return "Before the first search";
  if (stage === "end") return "The end: what is kept, and the answer";
  return "Round " + stage + (stage === 0 ? ": the first search" : ": searched with what was read so far");
}

function answerLine(story, row, run) {
  if (story.error)
    return el("p", { class: "answer" }, el("span", { class: "mini no", text: "failed" }), " " + story.error);
  const value = (key) => {
    const i = head.measures.findIndex((one) => one.key === key);
    return i < 0 ? null : row.runs[run].v[i];
  };
  const em = value("answer/em"),
    f1 = value("answer/f1"),
    words = em === 1 ? "right" : f1 > 0 ? "partly right" : "wrong";
  return el(
    "p",
    { class: "answer" },
    el("span", { class: "soft", text: "Answer " }),
    el("strong", { text: story.answer || "(none)" }),
    " ",
    em === null || !row.answers.length
      ? null
      : el("span", {
          class: "mini " + (em === 1 ? "yes" : f1 > 0 ? "half" : "no"),
          text: (em === 1 ? "✓ " : f1 > 0 ? "~ " : "✗ ") + words,
        }),
  );
}

function goldLines(story, about) {
  if (!story.gold || !story.gold.length) return null;
  return el(
    "div",
    {},
    el("h4", { text: "Gold passages in the final ranking" }),
    el(
      "ul",
      { class: "hits" },
      ...story.gold.map(([number, rank]) =>
        hit(number, "", about, [
          rank ? [rank <= 5 ? "up" : "down", "rank " + rank] : ["down", "not among the first " + story.depth],
        ]),
      ),
    ),
  );
}

function chips(story, row, run) {
  const rows = head.measures
    .filter((one) => one.key === "retrieval/recall@5" || one.key === "answer/f1" || one.key === "retrieval/node_f1")
    .map((one) => [one.name, fixed(valuesOf(row, run, one.key), 2)]);
  rows.push(["searches", story.queries], ["seconds", fixed(story.seconds, 2)]);
  if (story.calls) rows.push(["model calls", story.calls], ["tokens", story.tokens]);
  return el(
    "dl",
    { class: "chips" },
    ...rows.map(([name, value]) =>
      el("div", {}, el("dt", { text: name }), el("dd", { text: value === undefined ? "–" : String(value) })),
    ),
  );
}

function column(story, row, run, letter) {
  const about = { gold: new Set(row.gold), read: new Set(story.read || []) };
  const name = "column-" + letter;
  const holder = el(
    "section",
    { class: "column", "aria-labelledby": name, "data-run": runs[run].name },
    el("h3", { id: name }, el("span", { class: "letter", text: letter }), swatch(run), " " + runs[run].label),
    answerLine(story, row, run),
    chips(story, row, run),
    goldLines(story, about),
  );
  if (story.top && story.top.length) {
    holder.append(
      el(
        "details",
        {},
        el("summary", { text: "Final ranking, the first " + story.top.length }),
        el(
          "ol",
          { class: "hits" },
          ...story.top.map((number, i) => hit(number, i + 1, about, about.read.has(number) ? [["", "read"]] : [])),
        ),
      ),
    );
  }
  if (story.nodes && story.nodes.length) {
    const known = new Set(row.answers.map(folded));
    holder.append(
      el("h4", { text: "Nodes found" }),
      el(
        "ul",
        { class: "nodes" },
        ...story.nodes.map((node) =>
          el("li", {
            class: known.has(folded(node)) ? "tag gold" : "tag",
            text: (known.has(folded(node)) ? "★ " : "") + node,
          }),
        ),
      ),
    );
  }
  const figure = pathFigure(story, row, letter);
  if (figure) holder.append(figure);
  if (!story.sections.length)
    holder.append(
      el("p", { class: "soft", text: "No trace was kept of this question, so its rounds cannot be shown." }),
    );
  for (const section of story.sections) {
    const first = section.blocks.filter((block) => block.t === "query").length > 3 ? FEWER : FIRST;
    holder.append(
      el(
        "section",
        { class: "stage" },
        el(
          "details",
          { open: true },
          el("summary", {}, el("h4", { text: stageName(section.stage) })),
          ...section.blocks.map((block) => blockOf(block, about, section.stage, first)),
        ),
      ),
    );
  }
  return holder;
}

function questionHead(row) {
  const gold = row.answers.length
    ? row.answers.slice(0, 8).join(" · ") +
      (row.answers.length > 8 ? " · and " + (row.answers.length - 8) + " more" : "")
    : "not known here";
  const kind = [row.type, row.hops === undefined ? "" : plural(row.hops, "hop"), row.id].filter(Boolean).join(" · ");
  const holder = el(
    "header",
    {},
    el("h3", { id: "question-title", class: "big", text: row.text || row.id }),
    el("p", { class: "soft", text: kind }),
    el("p", { class: "answer" }, el("span", { class: "soft", text: "Gold answer " }), el("strong", { text: gold })),
  );
  if (row.steps) {
    holder.append(
      el(
        "details",
        {},
        el("summary", { text: "How the benchmark takes it apart (" + plural(row.steps.length, "step") + ")" }),
        el(
          "ol",
          {},
          ...row.steps.map(([ask, answer, number]) =>
            el(
              "li",
              {},
              ask + " → ",
              el("strong", { text: answer }),
              number < 0 ? null : el("span", { class: "tag gold", text: "★ " + passage(number).title }),
            ),
          ),
        ),
      ),
    );
  } else if (row.facts) {
    holder.append(
      el(
        "details",
        {},
        el("summary", { text: "Facts that prove it (" + row.facts.length + ")" }),
        el("ol", {}, ...row.facts.map((fact) => el("li", { text: fact.join(" – ") }))),
      ),
    );
  }
  return holder;
}

async function showQuestion() {
  const row = questions.find((one) => one.id === state.q),
    holder = byId("question"),
    mine = ++shown;
  if (!row) {
    holder.replaceChildren(
      el("h3", {
        id: "question-title",
        class: "big",
        text: state.q ? "There is no question " + short(state.q, 60) : "No question is chosen",
      }),
      el("p", {
        text:
          "Choose one in the list: what each of the two runs searched for, " +
          "what that brought, what was promoted or cut, and the answer will stand here side by side.",
      }),
    );
    return;
  }
  const sides =
    runs.length > 1
      ? [
          [state.a, "A"],
          [state.b, "B"],
        ]
      : [[state.a, "A"]];
  const stories = await Promise.all(sides.map(([run]) => loadStory(run, row.at)));
  await loadPassages(
    new Set([
      ...row.gold,
      ...(row.steps || []).map((step) => step[2]).filter((n) => n >= 0),
      ...stories.flatMap((story) => [...passagesOf(story)]),
    ]),
  );
  if (mine !== shown) return;
  holder.replaceChildren(
    questionHead(row),
    el("div", { class: "columns" }, ...sides.map(([run, letter], i) => column(stories[i], row, run, letter))),
  );
  holder.dataset.question = row.id;
}
