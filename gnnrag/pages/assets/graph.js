"use strict";
// Draws the data of this page. Every string goes in as text: nothing is ever parsed as HTML.
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const svg = document.getElementById("graph");
  const panel = document.getElementById("panel");
  const LETTER = /[\p{L}\p{N}]/u;
  const SPACE = "http://www.w3.org/2000/svg";

  function draw(parent, name, attributes, text) {
    const element = document.createElementNS(SPACE, name);
    for (const key in attributes) element.setAttribute(key, attributes[key]);
    if (text !== undefined) element.textContent = text;
    parent.appendChild(element);
    return element;
  }

  function put(parent, name, text, className) {
    const element = document.createElement(name);
    if (text !== undefined) element.textContent = text;
    if (className) element.className = className;
    parent.appendChild(element);
    return element;
  }

  function counted(count, word) {
    return count + " " + word + (count === 1 ? "" : "s");
  }

  document.getElementById("title").textContent = data.title;
  document.getElementById("summary").textContent =
    counted(data.nodes.length, "entity").replace("entitys", "entities") + ", " + counted(data.edges.length, "joined pair") +
    ". Click one, or use Tab and Enter.";

  // ------------------------------------------------------------------------------------------------ drawing
  const scene = draw(svg, "g", {});
  const edgeLayer = draw(scene, "g", {});
  const nodeLayer = draw(scene, "g", {});

  const edges = data.edges.map(function (edge) {
    const a = data.nodes[edge.a], b = data.nodes[edge.b];
    const group = draw(edgeLayer, "g", {
      class: "edge" + (edge.shown ? "" : " hidden"), tabindex: "0", role: "button",
      "aria-label": a.name + " and " + b.name + ": " + (edge.label || "joined") + ", " + counted(edge.of, "passage"),
    });
    const ends = { x1: a.x, y1: a.y, x2: b.x, y2: b.y };
    draw(group, "line", ends);
    draw(group, "line", Object.assign({ class: "hit" }, ends));
    draw(group, "text", { x: edge.x, y: edge.y }, edge.label);
    return group;
  });

  const nodes = data.nodes.map(function (node) {
    const group = draw(nodeLayer, "g", {
      class: "node " + node.role, tabindex: "0", role: "button",
      "aria-label": node.name + (node.type ? ", " + node.type : "") + ", " + data.roles[node.role] + ", " + counted(node.degree, "neighbour"),
    });
    const radius = node.role === "focus" ? 11 : 6 + Math.min(4, Math.log2(1 + node.degree) / 1.6);
    draw(group, "circle", { cx: node.x, cy: node.y, r: radius.toFixed(1), class: "k" + node.kind });
    draw(group, "text", { x: node.x, y: node.y + 24 }, node.label);
    draw(group, "title", {}, node.name);
    return group;
  });

  const legend = document.getElementById("legend");
  data.legend.forEach(function (row) {
    const item = put(legend, "li");
    put(item, "i", "", "k" + row.kind);
    put(item, "span", row.name);
  });
  if (data.legend.every(function (row) { return row.name !== data.roles.focus; })) {
    const item = put(legend, "li");
    put(item, "i", "", "ring");
    put(item, "span", data.roles.focus);
  }

  // ------------------------------------------------------------------------------------------------ details
  function marked(parent, text, names) {
    // Names of at least three letters as whole words, longest first.
    const found = names.filter(function (n) { return n.length > 2; }).sort(function (x, y) { return y.length - x.length; });
    const low = text.toLowerCase();
    let at = 0;
    while (at < text.length) {
      let next = -1, length = 0;
      found.forEach(function (name) {
        const key = name.toLowerCase();
        let place = low.indexOf(key, at);
        while (place >= 0 && (LETTER.test(low.charAt(place - 1)) || LETTER.test(low.charAt(place + key.length)))) {
          place = low.indexOf(key, place + 1);
        }
        if (place >= 0 && (next < 0 || place < next)) { next = place; length = key.length; }
      });
      if (next < 0 || low.length !== text.length) break;
      parent.appendChild(document.createTextNode(text.slice(at, next)));
      put(parent, "mark", text.slice(next, next + length));
      at = next + length;
    }
    parent.appendChild(document.createTextNode(text.slice(at)));
  }

  function showPassages(item, names) {
    if (!item.of) return;
    put(panel, "h3", item.of > item.passages.length ? "Passages (" + item.passages.length + " of " + item.of + ")" : "Passages");
    item.passages.forEach(function (row) {
      const passage = data.passages[row.at];
      const article = put(panel, "article");
      put(article, "h4", passage.title || passage.id);
      marked(put(article, "p"), passage.text, names);
      if (passage.title) put(article, "p", passage.id, "soft");
    });
  }

  function choice(list, text, group) {
    const button = put(put(list, "li"), "button", text);
    button.type = "button";
    button.addEventListener("click", function () { group.focus(); group.dispatchEvent(new MouseEvent("click", { bubbles: true })); });
  }

  function choose(group, near) {
    svg.classList.add("picked");
    nodes.concat(edges).forEach(function (one) { one.classList.remove("chosen", "near"); one.removeAttribute("aria-current"); });
    group.classList.add("chosen");
    group.setAttribute("aria-current", "true");
    near.forEach(function (one) { one.classList.add("near"); });
    panel.replaceChildren();
    panel.scrollTop = 0;
  }

  function showNode(i) {
    const node = data.nodes[i];
    const joined = data.edges.map(function (e, k) { return k; }).filter(function (k) { return data.edges[k].a === i || data.edges[k].b === i; });
    const others = joined.map(function (k) { return data.edges[k].a === i ? data.edges[k].b : data.edges[k].a; });
    choose(nodes[i], joined.map(function (k) { return edges[k]; }).concat(others.map(function (k) { return nodes[k]; })));
    put(panel, "h2", node.name);
    put(panel, "p", (node.type ? node.type + "; " : "") + data.roles[node.role] + "; " + counted(node.degree, "neighbour") + " in the whole graph", "soft");
    if (node.aliases.length) put(panel, "p", "also: " + node.aliases.join("; "), "soft");
    if (node.description) put(panel, "p", node.description);
    showPassages(node, [node.name].concat(node.aliases));
    if (joined.length) {
      put(panel, "h3", "Joined here to");
      const list = put(panel, "ul");
      joined.forEach(function (k, row) {
        const label = data.edges[k].label;
        choice(list, data.nodes[others[row]].name + (label ? " · " + label : ""), edges[k]);
      });
    }
  }

  function showEdge(k) {
    const edge = data.edges[k], a = data.nodes[edge.a], b = data.nodes[edge.b];
    choose(edges[k], [nodes[edge.a], nodes[edge.b]]);
    put(panel, "h2", a.name + " – " + b.name);
    put(panel, "p", counted(edge.count, "relation"), "soft");
    edge.statements.forEach(function (s) {
      const text = put(panel, "p");
      text.textContent = s.label ? s.head + " → " + s.label + " → " + s.tail + (s.text ? "\n" + s.text : "") : s.text;
    });
    if (edge.count > edge.statements.length) put(panel, "p", "and " + (edge.count - edge.statements.length) + " more", "soft");
    showPassages(edge, [a.name, b.name]);
    put(panel, "h3", "Ends");
    const list = put(panel, "ul");
    choice(list, a.name, nodes[edge.a]);
    choice(list, b.name, nodes[edge.b]);
  }

  function clear() {
    svg.classList.remove("picked");
    nodes.concat(edges).forEach(function (one) { one.classList.remove("chosen", "near"); one.removeAttribute("aria-current"); });
    panel.replaceChildren();
    put(panel, "h2", "Nothing is chosen");
    put(panel, "p", "Choose a node or an edge to read what is known of it and the passages that say so.", "soft");
    put(panel, "p", "Tab and Shift+Tab move, Enter chooses, Escape lets go; + and − zoom, arrow keys move the view, 0 shows all.", "soft");
  }

  function wire(group, show) {
    group.addEventListener("click", function (event) { event.stopPropagation(); if (!moved) show(); });
    group.addEventListener("keydown", function (event) {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); moved = false; show(); }
    });
  }
  let moved = false;
  nodes.forEach(function (group, i) { wire(group, function () { showNode(i); }); });
  edges.forEach(function (group, k) { wire(group, function () { showEdge(k); }); });

  // ------------------------------------------------------------------------------------------------ zoom and pan
  let view = { x: 0, y: 0, w: data.width, h: data.height };
  function apply() { svg.setAttribute("viewBox", [view.x, view.y, view.w, view.h].join(" ")); }
  function fit() { view = { x: 0, y: 0, w: data.width, h: data.height }; apply(); }
  function zoom(factor, x, y) {
    const w = Math.min(Math.max(view.w * factor, data.width / 12), data.width * 3);
    const scale = w / view.w;
    view = { x: x - (x - view.x) * scale, y: y - (y - view.y) * scale, w: w, h: view.h * scale };
    apply();
  }
  function middle() { return [view.x + view.w / 2, view.y + view.h / 2]; }
  function place(event) {
    return new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
  }
  svg.addEventListener("wheel", function (event) {
    event.preventDefault();
    const at = place(event);
    zoom(event.deltaY > 0 ? 1.15 : 1 / 1.15, at.x, at.y);
  }, { passive: false });
  let start = null;
  svg.addEventListener("pointerdown", function (event) { if (event.button === 0) { start = { x: event.clientX, y: event.clientY, view: view }; moved = false; } });
  window.addEventListener("pointermove", function (event) {
    if (!start) return;
    const scale = 1 / svg.getScreenCTM().a;
    const dx = event.clientX - start.x, dy = event.clientY - start.y;
    if (Math.abs(dx) + Math.abs(dy) > 4) { moved = true; svg.classList.add("moving"); }
    if (moved) { view = Object.assign({}, start.view, { x: start.view.x - dx * scale, y: start.view.y - dy * scale }); apply(); }
  });
  window.addEventListener("pointerup", function () { start = null; svg.classList.remove("moving"); });
  svg.addEventListener("click", function () { if (!moved) clear(); });
  document.getElementById("in").addEventListener("click", function () { zoom(1 / 1.3, ...middle()); });
  document.getElementById("out").addEventListener("click", function () { zoom(1.3, ...middle()); });
  document.getElementById("fit").addEventListener("click", fit);
  const toggle = document.getElementById("labels");
  toggle.addEventListener("click", function () { toggle.setAttribute("aria-pressed", String(svg.classList.toggle("all"))); });
  document.addEventListener("keydown", function (event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = view.w / 12;
    const moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] };
    if (event.key === "Escape") clear();
    else if (event.key === "+" || event.key === "=") zoom(1 / 1.3, ...middle());
    else if (event.key === "-") zoom(1.3, ...middle());
    else if (event.key === "0") fit();
    else if (event.key === "l") toggle.click();
    else if (moves[event.key] && !panel.contains(document.activeElement)) {
      event.preventDefault();
      view = Object.assign({}, view, { x: view.x + moves[event.key][0], y: view.y + moves[event.key][1] });
      apply();
    }
  });

  clear();
  fit();
}());
