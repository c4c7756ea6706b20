// The way of one question as a picture: the question, its queries by round, the passages that matter, the answer.
const PATH = { wide: 510, query: 212, gap: 62, line: 15, most: 12, passages: 10 };

function pathData(story, row) {
  const queries = [];
  for (const section of story.sections) {
    for (const block of section.blocks) {
      if (block.t !== "query") continue;
      const hits = block.hits || (block.sources || []).flat();
      queries.push({
        text: block.text,
        kind: block.kind,
        round: section.stage,
        hits: new Map(hits.map((number, i) => [number, i + 1]).reverse()),
      });
    }
  }
  const gold = new Set(row.gold),
    read = new Set(story.read || []);
  const chosen = [...new Set([...row.gold, ...(story.read || [])])].slice(0, Math.max(PATH.passages, row.gold.length));
  const firstly = (number) => {
    const i = queries.findIndex((query) => query.hits.has(number));
    return i < 0 ? Infinity : i;
  };
  const rank = (number) => (firstly(number) === Infinity ? 0 : queries[firstly(number)].hits.get(number));
  chosen.sort((x, y) => firstly(x) - firstly(y) || rank(x) - rank(y) || x - y);
  // Of many queries, those stay that first brought a passage of the picture, then the earliest.
  const needed = new Set(chosen.map(firstly));
  const kept = queries
    .map((query, i) => ({ ...query, i }))
    .sort((x, y) => needed.has(y.i) - needed.has(x.i) || x.i - y.i)
    .slice(0, PATH.most)
    .sort((x, y) => x.i - y.i);
  return { queries: kept, left: queries.length - kept.length, passages: chosen, gold, read, firstly };
}

function textLines(parent, lines, x, y, look) {
  lines.forEach((line, i) => parent.append(draw("text", { class: look, x, y: y + i * PATH.line, text: line })));
}

function headAndTail(text, length) {
  // Queries of one question often begin alike: of a long one the end is shown too.
  const lines = wrap(text, length);
  if (lines.length <= 2) return lines.map((line) => short(line, length));
  return [
    short(lines[0], length),
    "… " +
      wrap([...text].reverse().join(""), length - 2)[0]
        .split("")
        .reverse()
        .join(""),
  ];
}

function inLines(text, length, most) {
  const lines = wrap(text.replaceAll("_", " "), length).map((line) => short(line, length));
  return lines.length <= most ? lines : [...lines.slice(0, most - 1), short(lines.slice(most - 1).join(" "), length)];
}

function pathPicture(story, row, letter) {
  const { queries, left, passages, gold, read, firstly } = pathData(story, row);
  if (!queries.length && !passages.length) return null;
  const wide = PATH.wide,
    start = 40,
    queryAt = new Map(),
    passageAt = new Map();
  const far = PATH.query + PATH.gap;
  let y = start + 14,
    round = null;
  const boxes = draw("g", {}),
    lines = draw("g", {});
  for (const query of queries) {
    if (query.round !== round) {
      round = query.round;
      boxes.append(draw("text", { class: "small strong", x: 2, y: y + 4, text: "Round " + round }));
      y += 12;
    }
    const text = headAndTail(query.text.replace(/\s+/g, " "), 28),
      high = 14 + text.length * PATH.line;
    boxes.append(
      draw(
        "g",
        {},
        draw("rect", { class: "box-query", x: 1, y, width: PATH.query, height: high, rx: 6 }),
        draw("title", { text: query.text }),
      ),
    );
    textLines(boxes, text, 10, y + 19, "label");
    queryAt.set(query.i, y + high / 2);
    y += high + 12;
  }
  if (left) {
    boxes.append(
      draw("text", { class: "small", x: 2, y: y + 6, text: "and " + plural(left, "more query", "more queries") }),
    );
    y += 18;
  }
  let down = start + 26;
  for (const number of passages) {
    const own = passage(number),
      isGold = gold.has(number),
      text = inLines(own.title || own.id, isGold ? 24 : 26, 2),
      high = 12 + text.length * PATH.line;
    const missing = firstly(number) === Infinity;
    boxes.append(
      draw(
        "g",
        {},
        draw("rect", {
          class: "box-passage" + (isGold ? " gold" : "") + (missing ? " missing" : ""),
          x: far,
          y: down,
          width: wide - far - 26,
          height: high,
          rx: 6,
        }),
        draw("title", { text: own.title + (isGold ? " (gold)" : "") + (missing ? ", in no query's first ten" : "") }),
      ),
    );
    if (isGold) boxes.append(draw("text", { class: "label star", x: far + 7, y: down + 18, text: "★" }));
    textLines(boxes, text, far + (isGold ? 24 : 9), down + 18, "label");
    passageAt.set(number, [down + high / 2, high]);
    down += high + 8;
  }
  const bottom = Math.max(y, down) + 14,
    failed = story.error;
  boxes.append(draw("rect", { class: "box-ask", x: 1, y: 1, width: wide - 2, height: 28, rx: 6 }));
  textLines(boxes, [short("Question: " + (row.text || row.id), 68)], 10, 20, "label");
  boxes.append(draw("rect", { class: "box-ask", x: 1, y: bottom, width: wide - 2, height: 28, rx: 6 }));
  textLines(
    boxes,
    [short(failed ? "Failed: " + story.error : "Answer: " + (story.answer || "none"), 68)],
    10,
    bottom + 19,
    "label",
  );
  for (const query of queries) {
    for (const number of passages) {
      if (!query.hits.has(number)) continue;
      const from = queryAt.get(query.i),
        to = passageAt.get(number)[0],
        isFirst = firstly(number) === query.i;
      lines.append(
        draw("path", {
          class: "edge" + (isFirst ? " first" : "") + (gold.has(number) ? " gold" : ""),
          d: `M${PATH.query + 1} ${from}C${PATH.query + PATH.gap * 0.5} ${from} ${far - PATH.gap * 0.5} ${to} ${far} ${to}`,
        }),
      );
    }
  }
  for (const number of passages) {
    if (!read.has(number)) continue;
    const at = passageAt.get(number)[0];
    lines.append(
      draw("path", {
        class: "edge reads" + (gold.has(number) ? " gold" : ""),
        d: `M${wide - 26} ${at}H${wide - 12}V${bottom}`,
      }),
    );
  }
  const reached = row.gold.filter((number) => firstly(number) !== Infinity).length;
  const name =
    `Path of run ${letter}: ${plural(queries.length + left, "query", "queries")}, ` +
    `which brought ${reached} of ${plural(row.gold.length, "gold passage")} among their first ten; ` +
    "the same is told in words below.";
  return draw(
    "svg",
    { class: "path", viewBox: `0 0 ${wide} ${bottom + 30}`, role: "img", "aria-label": name },
    lines,
    boxes,
  );
}

function pathFigure(story, row, letter) {
  const picture = pathPicture(story, row, letter);
  if (!picture) return null;
  return el(
    "figure",
    { class: "way" },
    el(
      "figcaption",
      {},
      el("h4", { text: "The path" }),
      el("p", {
        class: "help",
        text:
          "Left: queries, by round. Right: passages they brought among their first ten; " +
          "★ gold, dashed: brought by none. Strong line: who brought it first. Right edge: read for the answer.",
      }),
    ),
    region("Path of run " + letter + ", scrolls sideways", picture),
  );
}
