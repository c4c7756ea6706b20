// Charts as inline SVG: lines, bars, points, one stacked bar. All share a frame with axes.
const HIGH = 330,
  LEFT = 52,
  RIGHT = 18,
  TOP = 14,
  BOTTOM = 52,
  LETTER = 7.4; // width of one in a label
const NARROW = window.matchMedia("(max-width: 620px)");
let WIDE = 640; // a narrow window has narrow pictures, so that their letters stay as large

function scale(low, high, from, to) {
  return (value) => from + ((value - low) / (high - low || 1)) * (to - from);
}

function roundSteps(high, count) {
  const rough = high / count,
    size = 10 ** Math.floor(Math.log10(rough || 1));
  const step = [1, 2, 5, 10].map((times) => times * size).find((one) => one >= rough) || rough;
  return Array.from({ length: Math.ceil(high / step - 1e-9) + 1 }, (_, i) => i * step);
}

function fitting(values) {
  // Ticks from the fifth below the smallest value up to 1: lines need no zero, and high values lie close together.
  const low = Math.min(...values.filter((value) => typeof value === "number"), 0.8);
  return [0, 0.2, 0.4, 0.6, 0.8, 1].filter((tick) => tick > low - 0.2 + 1e-9 || tick === 1);
}

function frame(name, text, yName, ys, y) {
  const picture = draw("svg", {
    class: "chart",
    viewBox: `0 0 ${WIDE} ${HIGH}`,
    role: "img",
    "aria-label": name + ". " + text,
  });
  for (const value of ys) {
    picture.append(draw("line", { class: "grid", x1: LEFT, x2: WIDE - RIGHT, y1: y(value), y2: y(value) }));
    picture.append(
      draw("text", { class: "tick", x: LEFT - 8, y: y(value) + 4, "text-anchor": "end", text: +value.toFixed(4) }),
    );
  }
  picture.append(
    draw("text", {
      class: "axis",
      x: 14,
      y: (TOP + HIGH - BOTTOM) / 2,
      "text-anchor": "middle",
      transform: `rotate(-90 14 ${(TOP + HIGH - BOTTOM) / 2})`,
      text: yName,
    }),
  );
  return picture;
}

function underneath(picture, xName) {
  picture.append(
    draw("text", { class: "axis", x: (LEFT + WIDE - RIGHT) / 2, y: HIGH - 8, "text-anchor": "middle", text: xName }),
  );
}

function lineChart({ name, text, xName, yName, series, ticks, log, apart = 0 }) {
  // series: [{at: number of the run, points: [[x, y]], look: a further class}]
  const ys = fitting(series.flatMap((one) => one.points.map((point) => point[1])));
  const y = scale(ys[0], 1, HIGH - BOTTOM, TOP),
    turn = log ? Math.log : (value) => value;
  const x0 = scale(turn(ticks[0]), turn(ticks[ticks.length - 1]), LEFT + 14, WIDE - RIGHT - 14),
    plain = (value) => x0(turn(value));
  const picture = frame(name, text, yName, ys, y);
  let last = -Infinity;
  for (const tick of ticks) {
    if (plain(tick) - last < 26) continue; // no room for its number
    last = plain(tick);
    picture.append(
      draw("text", { class: "tick", x: last, y: HIGH - BOTTOM + 20, "text-anchor": "middle", text: tick }),
    );
  }
  for (const { at, points, look = "" } of series) {
    const x = (value) => plain(value) + (apart ? (at - (runs.length - 1) / 2) * apart : 0); // equal values would hide each other
    const known = points.filter((point) => typeof point[1] === "number");
    if (!known.length) continue;
    picture.append(
      draw("path", {
        class: "line c" + (at % 8) + " " + look,
        d: "M" + known.map(([a, b]) => x(a).toFixed(1) + " " + y(b).toFixed(1)).join("L"),
      }),
    );
    for (const [a, b] of known) {
      picture.append(
        draw(
          "g",
          {},
          mark(at, x(a), y(b), 4.5),
          draw("title", { text: runs[at].label + ": " + fixed(b, 4) + " at " + a }),
        ),
      );
    }
  }
  underneath(picture, xName);
  return picture;
}

function barChart({ name, text, yName, groups, values, most }) {
  // groups: [label]; values: one list for each run, of a value for each group.
  const high = most || 1,
    ys = most ? roundSteps(most, 5) : [0, 0.2, 0.4, 0.6, 0.8, 1];
  const y = scale(0, ys[ys.length - 1] || high, HIGH - BOTTOM, TOP);
  const picture = frame(name, text, yName, ys, y);
  const room = (WIDE - LEFT - RIGHT) / groups.length,
    width = Math.min(46, (room * 0.78) / values.length);
  groups.forEach((label, group) => {
    const middle = LEFT + room * (group + 0.5),
      long = Math.max(3, Math.floor((room - 6) / LETTER));
    const lines = wrap(broken(label, long), long).slice(0, 3);
    lines.forEach((line, i) => {
      const tick = { class: "tick", x: middle, y: HIGH - BOTTOM + 17 + 15 * i, "text-anchor": "middle" };
      picture.append(draw("text", { ...tick, text: short(line, long) }, draw("title", { text: label })));
    });
    values.forEach((row, at) => {
      const value = row[group];
      if (typeof value !== "number") return;
      const left = middle + (at - values.length / 2) * width;
      picture.append(
        draw(
          "g",
          {},
          draw("rect", {
            class: "bar c" + (at % 8),
            x: left + 1.5,
            width: Math.max(2, width - 3),
            y: y(value),
            height: Math.max(0.5, y(0) - y(value)),
          }),
          width > 30
            ? draw("text", {
                class: "value",
                x: left + width / 2,
                y: y(value) - 4,
                "text-anchor": "middle",
                text: fixed(value, 2),
              })
            : null,
          draw("title", { text: runs[at].label + ", " + label + ": " + fixed(value, 4) }),
        ),
      );
    });
  });
  return picture;
}

function broken(text, length) {
  // Words that are too long for a line come in parts.
  const part = new RegExp(`[^ ]{${length - 1}}(?=[^ ]{2})`, "g");
  return text.replaceAll("_", " ").replace(part, "$&- ");
}

function wrap(text, length) {
  const lines = [""];
  for (const word of text.replaceAll("_", " ").split(" ")) {
    const last = lines[lines.length - 1];
    if (last && last.length + word.length + 1 > length) lines.push(word);
    else lines[lines.length - 1] = last ? last + " " + word : word;
  }
  return lines;
}

function pointChart({ name, text, xName, yName, points }) {
  // points: one [x, y] for each run.
  const xs = roundSteps(Math.max(...points.map((point) => point[0] || 0)) * 1.08 || 1, 6);
  const x = scale(0, xs[xs.length - 1], LEFT + 4, WIDE - RIGHT - 14),
    ys = fitting(points.map((point) => point[1]));
  const y = scale(ys[0], 1, HIGH - BOTTOM, TOP),
    picture = frame(name, text, yName, ys, y);
  for (const tick of xs) {
    picture.append(draw("line", { class: "grid", x1: x(tick), x2: x(tick), y1: TOP, y2: HIGH - BOTTOM }));
    picture.append(
      draw("text", {
        class: "tick",
        x: x(tick),
        y: HIGH - BOTTOM + 20,
        "text-anchor": "middle",
        text: +tick.toPrecision(6),
      }),
    );
  }
  // A label stands where neither a mark nor another label is; where there is no such place, the legend has to do.
  const taken = points.map(([a, b]) => [x(a) - 8, y(b) - 8, 16, 16]);
  points.forEach(([a, b], at) => {
    if (typeof a !== "number" || typeof b !== "number") return;
    const label = short(runs[at].method, 18),
      wide = label.length * 7.4;
    const places = [
      [x(a) + 11, y(b) - 8],
      [x(a) - 11 - wide, y(b) - 8],
      [x(a) - wide / 2, y(b) - 26],
      [x(a) - wide / 2, y(b) + 10],
    ];
    const free = places.find(
      ([left, top]) =>
        left > LEFT &&
        left + wide < WIDE &&
        top > 0 &&
        !taken.some(([p, q, w, h]) => left < p + w && p < left + wide && top < q + h && q < top + 16),
    );
    if (free) taken.push([free[0], free[1], wide, 16]);
    picture.append(
      draw(
        "g",
        {},
        mark(at, x(a), y(b), 6),
        free ? draw("text", { class: "value", x: free[0], y: free[1] + 12, text: label }) : null,
        draw("title", { text: runs[at].label + ": " + fixed(b, 4) + " at " + a }),
      ),
    );
  });
  underneath(picture, xName);
  return picture;
}

function shareBar({ name, text, parts }) {
  // parts: [{label, count, look}]
  const total = parts.reduce((sum, part) => sum + part.count, 0) || 1;
  const picture = draw("svg", {
    class: "chart share",
    viewBox: `0 0 ${WIDE} 62`,
    role: "img",
    "aria-label": name + ". " + text,
  });
  let left = 4;
  for (const part of parts) {
    const width = ((WIDE - 8) * part.count) / total;
    if (!width) continue;
    picture.append(
      draw(
        "g",
        {},
        draw("rect", { class: "part " + part.look, x: left, y: 10, width: Math.max(1, width - 2), height: 42 }),
        width > 44
          ? draw("text", {
              class: "value inside",
              x: left + width / 2,
              y: 36,
              "text-anchor": "middle",
              text: ((100 * part.count) / total).toFixed(0) + " %",
            })
          : null,
        draw("title", { text: part.label + ": " + part.count }),
      ),
    );
    left += width;
  }
  return picture;
}
